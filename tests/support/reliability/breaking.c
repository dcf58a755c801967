/* Between a program and libc: counts the calls that change files below one folder, and breaks one.
 *
 * Loaded with LD_PRELOAD. `breaking_arm` says what happens at which call; `breaking_count` tells
 * how many there were. SQLite and Python alike come through here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { COUNT, KILL_BEFORE, KILL_AFTER, KILL_HALF, FAIL_ONCE, FULL };

static int armed, at, mode, code, calls;
static char root[PATH_MAX];

void breaking_arm(const char *folder, int at_call, int what, int error) {
    strncpy(root, folder, sizeof root - 1);
    at = at_call, mode = what, code = error, calls = 0, armed = 1;
}

int breaking_count(void) {
    armed = 0;
    return calls;
}

static int below(const char *path) { return strncmp(path, root, strlen(root)) == 0; }

static int fd_below(int fd) {
    char name[64], path[PATH_MAX];
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(name, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = 0;
    return below(path);
}

/* Return whether the call is to fail, errno set; `takes` says whether it needs room on the disk. */
static int before(int *number, int takes) {
    *number = -1;
    if (!armed) return 0;
    *number = calls++;
    int here = *number == at;
    if (here && mode == KILL_BEFORE) raise(SIGKILL);
    if ((here && mode == FAIL_ONCE) || (mode == FULL && *number >= at && takes)) {
        errno = code;
        return 1;
    }
    return 0;
}

static void after(int number) {
    if (number >= 0 && number == at && (mode == KILL_AFTER || mode == KILL_HALF)) raise(SIGKILL);
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define CALL(mine, takes, expression)          \
    int number = -1;                           \
    if ((mine) && before(&number, takes)) return -1; \
    __auto_type result = (expression);         \
    after(number);                             \
    return result;

ssize_t write(int fd, const void *data, size_t size) {
    static ssize_t (*real)(int, const void *, size_t);
    if (!real) real = REAL(write);
    int number = -1;
    if (armed && fd_below(fd) && before(&number, 1)) return -1;
    if (number >= 0 && number == at && mode == KILL_HALF) size /= 2;
    ssize_t result = real(fd, data, size);
    after(number);
    return result;
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t place) {
    static ssize_t (*real)(int, const void *, size_t, off64_t);
    if (!real) real = REAL(pwrite64);
    int number = -1;
    if (armed && fd_below(fd) && before(&number, 1)) return -1;
    if (number >= 0 && number == at && mode == KILL_HALF) size /= 2;
    ssize_t result = real(fd, data, size, place);
    after(number);
    return result;
}
ssize_t pwrite(int fd, const void *data, size_t size, off_t place) {
    return pwrite64(fd, data, size, place);
}

#define CHANGES (O_WRONLY | O_RDWR | O_CREAT | O_TRUNC)
#define OPEN(name)                                                              \
    int name(const char *path, int flags, ...) {                                \
        va_list rest;                                                           \
        va_start(rest, flags);                                                  \
        mode_t bits = va_arg(rest, mode_t);                                     \
        va_end(rest);                                                           \
        CALL((flags & CHANGES) && below(path), (flags & O_CREAT) != 0,          \
             REAL(name)(path, flags, bits))                                     \
    }
OPEN(open)
OPEN(open64)

int fsync(int fd) { CALL(fd_below(fd), 1, REAL(fsync)(fd)) }
int fdatasync(int fd) { CALL(fd_below(fd), 1, REAL(fdatasync)(fd)) }
int ftruncate64(int fd, off64_t size) { CALL(fd_below(fd), 1, REAL(ftruncate64)(fd, size)) }
int ftruncate(int fd, off_t size) { CALL(fd_below(fd), 1, REAL(ftruncate)(fd, size)) }
int fchmod(int fd, mode_t bits) { CALL(fd_below(fd), 0, REAL(fchmod)(fd, bits)) }
int chmod(const char *path, mode_t bits) { CALL(below(path), 0, REAL(chmod)(path, bits)) }
int chown(const char *path, uid_t user, gid_t group) {
    CALL(below(path), 0, REAL(chown)(path, user, group))
}
int rename(const char *from, const char *to) { CALL(below(to), 0, REAL(rename)(from, to)) }
int link(const char *from, const char *to) { CALL(below(to), 1, REAL(link)(from, to)) }
int unlink(const char *path) { CALL(below(path), 0, REAL(unlink)(path)) }
int rmdir(const char *path) { CALL(below(path), 0, REAL(rmdir)(path)) }
int mkdir(const char *path, mode_t bits) { CALL(below(path), 1, REAL(mkdir)(path, bits)) }
