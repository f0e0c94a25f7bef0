// See CUDAStream.h.
#pragma once
#include <c10/core/Device.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAStream.h>
#include <optional>
namespace c10::cuda {
struct CUDAGuard {
  explicit CUDAGuard(Device device);
  explicit CUDAGuard(signed char device_index);
  void set_device(Device device);
  void reset_device(Device device);
  void set_index(signed char device_index);
  Device original_device() const;
  Device current_device() const;
};
struct OptionalCUDAGuard {
  explicit OptionalCUDAGuard();
  explicit OptionalCUDAGuard(std::optional<Device> device);
  explicit OptionalCUDAGuard(std::optional<signed char> device_index);
  void set_device(Device device);
  void reset_device(Device device);
  void set_index(signed char device_index);
  std::optional<Device> original_device() const;
  std::optional<Device> current_device() const;
  void reset();
};
struct CUDAStreamGuard {
  explicit CUDAStreamGuard(CUDAStream stream);
  void reset_stream(CUDAStream stream);
};
}  // namespace c10::cuda
namespace at::cuda {
using c10::cuda::CUDAGuard;
using c10::cuda::CUDAStreamGuard;
using c10::cuda::OptionalCUDAGuard;
}  // namespace at::cuda
