/* A library of one operator, acme.Twice: y = 2x, of float32 and any shape. */
#include <stddef.h>

#include "ort_abi.h"

static const OrtApi *api;

static void *create(const OrtCustomOp *op, const OrtApi *given, const OrtKernelInfo *info) {
  (void)op;
  (void)given;
  (void)info;
  return (void *)1;
}
static void destroy(void *kernel) { (void)kernel; }
static const char *name(const OrtCustomOp *op) {
  (void)op;
  return "Twice";
}
static const char *provider(const OrtCustomOp *op) {
  (void)op;
  return NULL;
}
static int tensor_type(const OrtCustomOp *op, size_t at) {
  (void)op;
  (void)at;
  return ORT_TENSOR_FLOAT;
}
static size_t one(const OrtCustomOp *op) {
  (void)op;
  return 1;
}
static int none(const OrtCustomOp *op, size_t at) {
  (void)op;
  (void)at;
  return 0;
}
static int least(const OrtCustomOp *op) {
  (void)op;
  return 1;
}

static void compute(void *kernel, OrtKernelContext *context) {
  const OrtValue *in;
  OrtValue *out;
  OrtTensorTypeAndShapeInfo *info;
  size_t rank, total = 1;
  int64_t dims[8];
  float *x, *y;
  (void)kernel;
  ORT_CALL(api, 90, ort_context_input)(context, 0, &in);
  ORT_CALL(api, 65, ort_type_shape)(in, &info);
  ORT_CALL(api, 61, ort_dim_count)(info, &rank);
  ORT_CALL(api, 62, ort_dims)(info, dims, rank);
  ORT_CALL(api, 99, ort_release_type_shape)(info);
  ORT_CALL(api, 91, ort_context_output)(context, 0, dims, rank, &out);
  ORT_CALL(api, 51, ort_tensor_data)((OrtValue *)in, (void **)&x);
  ORT_CALL(api, 51, ort_tensor_data)(out, (void **)&y);
  for (size_t i = 0; i < rank; i++) total *= (size_t)dims[i];
  for (size_t i = 0; i < total; i++) y[i] = 2 * x[i];
}

static const OrtCustomOp twice = {
    .version = AOE_ORT_CUSTOM_OP_VERSION,
    .CreateKernel = create,
    .GetName = name,
    .GetExecutionProviderType = provider,
    .GetInputType = tensor_type,
    .GetInputTypeCount = one,
    .GetOutputType = tensor_type,
    .GetOutputTypeCount = one,
    .KernelCompute = compute,
    .KernelDestroy = destroy,
    .GetInputCharacteristic = none,
    .GetOutputCharacteristic = none,
    .GetInputMemoryType = none,
    .GetVariadicInputMinArity = least,
    .GetVariadicInputHomogeneity = least,
    .GetVariadicOutputMinArity = least,
    .GetVariadicOutputHomogeneity = least,
};

OrtStatus *RegisterCustomOps(OrtSessionOptions *options, const OrtApiBase *base) {
  OrtCustomOpDomain *domain;
  OrtStatus *status;
  api = base->GetApi(AOE_ORT_API_VERSION);
  status = ORT_CALL(api, 26, ort_create_domain)("acme", &domain);
  if (status == NULL) status = ORT_CALL(api, 27, ort_domain_add)(domain, &twice);
  if (status == NULL) status = ORT_CALL(api, 28, ort_add_domain)(options, domain);
  return status;
}
