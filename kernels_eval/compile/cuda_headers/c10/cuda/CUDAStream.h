// For compiling device code against a CPU build of PyTorch: the declarations that extensions use. Never linked, never run.
#pragma once
#include <cuda_runtime_api.h>
namespace c10::cuda {
struct CUDAStream {
  cudaStream_t stream() const;
  operator cudaStream_t() const;
  void synchronize() const;
};
CUDAStream getCurrentCUDAStream(signed char device_index = -1);
CUDAStream getDefaultCUDAStream(signed char device_index = -1);
CUDAStream getStreamFromPool(bool high_priority = false, signed char device_index = -1);
}  // namespace c10::cuda
namespace at::cuda {
using c10::cuda::CUDAStream;
using c10::cuda::getCurrentCUDAStream;
using c10::cuda::getDefaultCUDAStream;
using c10::cuda::getStreamFromPool;
}  // namespace at::cuda
