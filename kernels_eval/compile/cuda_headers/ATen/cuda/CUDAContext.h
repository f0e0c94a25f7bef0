// See c10/cuda/CUDAStream.h.
#pragma once
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
namespace at::cuda {
cudaDeviceProp* getCurrentDeviceProperties();
}  // namespace at::cuda
