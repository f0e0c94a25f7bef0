// See CUDAStream.h.
#pragma once
#include <cuda_runtime_api.h>
#include <c10/util/Exception.h>
#define C10_CUDA_CHECK(EXPRESSION)                                                        \
  do {                                                                                    \
    const cudaError_t c10_cuda_error = (EXPRESSION);                                      \
    TORCH_CHECK(c10_cuda_error == cudaSuccess, cudaGetErrorString(c10_cuda_error));       \
  } while (0)
#define C10_CUDA_KERNEL_LAUNCH_CHECK() C10_CUDA_CHECK(cudaGetLastError())
#define AT_CUDA_CHECK(EXPRESSION) C10_CUDA_CHECK(EXPRESSION)
