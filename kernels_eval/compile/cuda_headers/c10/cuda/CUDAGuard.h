// See CUDAStream.h.
#pragma once
#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
namespace c10::cuda {
struct CUDAGuard {
  explicit CUDAGuard(Device device);
  explicit CUDAGuard(signed char device_index);
};
struct OptionalCUDAGuard {
  explicit OptionalCUDAGuard(Device device);
};
}  // namespace c10::cuda
namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
