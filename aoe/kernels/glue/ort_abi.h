/* The part of ONNX Runtime's C ABI which the kernel library uses.
 *
 * Written from the facts of the public C API: OrtApi is an append-only table of function
 * pointers, so a slot number is valid for every release that has it; OrtCustomOp is a struct of
 * callbacks read only as far as its `version` promises. A test checks every slot used here
 * against the installed ONNX Runtime by behaviour.
 */
#ifndef AOE_ORT_ABI_H
#define AOE_ORT_ABI_H

#include <stddef.h>
#include <stdint.h>

#define AOE_ORT_API_VERSION 17 /* first release with KernelContext_ParallelFor (slot 274) */
#define AOE_ORT_CUSTOM_OP_VERSION 16

typedef struct OrtStatus OrtStatus;
typedef struct OrtValue OrtValue;
typedef struct OrtKernelContext OrtKernelContext;
typedef struct OrtKernelInfo OrtKernelInfo;
typedef struct OrtSessionOptions OrtSessionOptions;
typedef struct OrtCustomOpDomain OrtCustomOpDomain;
typedef struct OrtTensorTypeAndShapeInfo OrtTensorTypeAndShapeInfo;

typedef struct {
  void *slot[512]; /* only slots below are touched; the table of API 17 has at least 276 */
} OrtApi;

typedef struct {
  const OrtApi *(*GetApi)(uint32_t version);
  const char *(*GetVersionString)(void);
} OrtApiBase;

enum { ORT_FAIL = 1, ORT_INVALID_ARGUMENT = 2, ORT_NOT_IMPLEMENTED = 9 };
enum {
  ORT_TENSOR_FLOAT = 1,
  ORT_TENSOR_UINT8 = 2,
  ORT_TENSOR_INT8 = 3,
  ORT_TENSOR_UINT16 = 4,
  ORT_TENSOR_INT16 = 5,
  ORT_TENSOR_INT32 = 6,
  ORT_TENSOR_INT64 = 7,
  ORT_TENSOR_BOOL = 9,
  ORT_TENSOR_FLOAT16 = 10
};

#define ORT_CALL(api, index, type) ((type)(api)->slot[index])

typedef OrtStatus *(*ort_create_status)(int code, const char *message);             /*   0 */
typedef OrtStatus *(*ort_create_domain)(const char *name, OrtCustomOpDomain **out);  /*  26 */
typedef OrtStatus *(*ort_domain_add)(OrtCustomOpDomain *, const void *op);           /*  27 */
typedef OrtStatus *(*ort_add_domain)(OrtSessionOptions *, OrtCustomOpDomain *);      /*  28 */
typedef OrtStatus *(*ort_tensor_data)(OrtValue *, void **out);                       /*  51 */
typedef OrtStatus *(*ort_dim_count)(const OrtTensorTypeAndShapeInfo *, size_t *out); /*  61 */
typedef OrtStatus *(*ort_dims)(const OrtTensorTypeAndShapeInfo *, int64_t *, size_t); /* 62 */
typedef OrtStatus *(*ort_type_shape)(const OrtValue *, OrtTensorTypeAndShapeInfo **); /* 65 */
typedef OrtStatus *(*ort_context_input)(const OrtKernelContext *, size_t, const OrtValue **);
                                                                                     /*  90 */
typedef OrtStatus *(*ort_context_output)(OrtKernelContext *, size_t, const int64_t *, size_t,
                                         OrtValue **);                               /*  91 */
typedef void (*ort_release_status)(OrtStatus *);                                     /*  93 */
typedef void (*ort_release_type_shape)(OrtTensorTypeAndShapeInfo *);                 /*  99 */
typedef OrtStatus *(*ort_constant_input)(const OrtKernelInfo *, size_t, int *is_constant,
                                         const OrtValue **);                         /* 249 */
typedef OrtStatus *(*ort_parallel_for)(const OrtKernelContext *, void (*)(void *, size_t),
                                       size_t total, size_t num_batch, void *data);  /* 274 */

typedef struct OrtCustomOp {
  uint32_t version;
  void *(*CreateKernel)(const struct OrtCustomOp *, const OrtApi *, const OrtKernelInfo *);
  const char *(*GetName)(const struct OrtCustomOp *);
  const char *(*GetExecutionProviderType)(const struct OrtCustomOp *);
  int (*GetInputType)(const struct OrtCustomOp *, size_t);
  size_t (*GetInputTypeCount)(const struct OrtCustomOp *);
  int (*GetOutputType)(const struct OrtCustomOp *, size_t);
  size_t (*GetOutputTypeCount)(const struct OrtCustomOp *);
  void (*KernelCompute)(void *kernel, OrtKernelContext *);
  void (*KernelDestroy)(void *kernel);
  int (*GetInputCharacteristic)(const struct OrtCustomOp *, size_t);
  int (*GetOutputCharacteristic)(const struct OrtCustomOp *, size_t);
  int (*GetInputMemoryType)(const struct OrtCustomOp *, size_t);
  int (*GetVariadicInputMinArity)(const struct OrtCustomOp *);
  int (*GetVariadicInputHomogeneity)(const struct OrtCustomOp *);
  int (*GetVariadicOutputMinArity)(const struct OrtCustomOp *);
  int (*GetVariadicOutputHomogeneity)(const struct OrtCustomOp *);
  OrtStatus *(*CreateKernelV2)(const struct OrtCustomOp *, const OrtApi *, const OrtKernelInfo *,
                               void **kernel);
  OrtStatus *(*KernelComputeV2)(void *kernel, OrtKernelContext *);
} OrtCustomOp;

#endif
