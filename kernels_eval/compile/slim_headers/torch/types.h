// The part of PyTorch's C++ that most extensions use, on top of the stable C interface of libtorch
// (torch/csrc/inductor/aoti_torch/c/shim.h): nvcc reads it in a tenth of a second, PyTorch's own headers in ten. What is
// not declared here does not compile, and is then built with PyTorch's headers: nothing here may mean anything else
// than it does there.
#pragma once
#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

struct AtenTensorOpaque;
extern "C" {
int32_t aoti_torch_delete_tensor_object(AtenTensorOpaque*);
int32_t aoti_torch_new_tensor_handle(AtenTensorOpaque*, AtenTensorOpaque**);
int32_t aoti_torch_get_data_ptr(AtenTensorOpaque*, void**);
int32_t aoti_torch_get_dim(AtenTensorOpaque*, int64_t*);
int32_t aoti_torch_get_numel(AtenTensorOpaque*, int64_t*);
int32_t aoti_torch_get_sizes(AtenTensorOpaque*, int64_t**);
int32_t aoti_torch_get_strides(AtenTensorOpaque*, int64_t**);
int32_t aoti_torch_get_dtype(AtenTensorOpaque*, int32_t*);
int32_t aoti_torch_get_device_type(AtenTensorOpaque*, int32_t*);
int32_t aoti_torch_get_device_index(AtenTensorOpaque*, int32_t*);
int32_t aoti_torch_is_contiguous(AtenTensorOpaque*, bool*);
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_empty_strided(
    int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, AtenTensorOpaque**);
int32_t aoti_torch_zero_(AtenTensorOpaque*);
}

namespace slim {
inline void check(int32_t error) {
    if (error != 0) throw std::runtime_error("an operation of PyTorch failed; what was wrong is on standard error");
}
template <typename Value, typename Get>
Value got(Get get, AtenTensorOpaque* handle) {
    Value value;
    check(get(handle, &value));
    return value;
}
template <typename T>
struct TypeOf;  // other types are built with PyTorch's headers
template <>
struct TypeOf<float> {
    static int32_t number() { return aoti_torch_dtype_float32(); }
};
template <>
struct TypeOf<double> {
    static int32_t number() { return aoti_torch_dtype_float64(); }
};
template <>
struct TypeOf<int32_t> {
    static int32_t number() { return aoti_torch_dtype_int32(); }
};
template <>
struct TypeOf<int64_t> {
    static int32_t number() { return aoti_torch_dtype_int64(); }
};
}  // namespace slim

namespace torch {
class IntArrayRef {
public:
    IntArrayRef(const int64_t* data, size_t size) : values_(data, data + size) {}
    IntArrayRef(std::initializer_list<int64_t> values) : values_(values) {}
    IntArrayRef(const std::vector<int64_t>& values) : values_(values) {}
    size_t size() const { return values_.size(); }
    int64_t operator[](size_t index) const { return values_[index]; }
    const int64_t* data() const { return values_.data(); }
    const int64_t* begin() const { return values_.data(); }
    const int64_t* end() const { return values_.data() + values_.size(); }
    std::vector<int64_t> vec() const { return values_; }
    bool operator==(const IntArrayRef& other) const { return values_ == other.values_; }
    bool operator!=(const IntArrayRef& other) const { return values_ != other.values_; }

private:
    std::vector<int64_t> values_;
};

struct Device {
    int32_t type;
    bool is_cuda() const { return type == aoti_torch_device_type_cuda(); }
};

struct TensorOptions {
    int32_t dtype, device_type, device_index;
};

class Tensor {
public:
    explicit Tensor(AtenTensorOpaque* owned) : handle_(owned, aoti_torch_delete_tensor_object) {}
    AtenTensorOpaque* handle() const { return handle_.get(); }
    int64_t dim() const { return slim::got<int64_t>(aoti_torch_get_dim, handle()); }
    int64_t numel() const { return slim::got<int64_t>(aoti_torch_get_numel, handle()); }
    IntArrayRef sizes() const { return {slim::got<int64_t*>(aoti_torch_get_sizes, handle()), size_t(dim())}; }
    IntArrayRef strides() const { return {slim::got<int64_t*>(aoti_torch_get_strides, handle()), size_t(dim())}; }
    int64_t size(int64_t axis) const { return slim::got<int64_t*>(aoti_torch_get_sizes, handle())[at(axis)]; }
    int64_t stride(int64_t axis) const { return slim::got<int64_t*>(aoti_torch_get_strides, handle())[at(axis)]; }
    bool is_contiguous() const { return slim::got<bool>(aoti_torch_is_contiguous, handle()); }
    Device device() const { return {slim::got<int32_t>(aoti_torch_get_device_type, handle())}; }
    bool is_cuda() const { return device().is_cuda(); }
    TensorOptions options() const {
        return {slim::got<int32_t>(aoti_torch_get_dtype, handle()), device().type,
                slim::got<int32_t>(aoti_torch_get_device_index, handle())};
    }
    template <typename T>
    T* data_ptr() const {
        if (slim::got<int32_t>(aoti_torch_get_dtype, handle()) != slim::TypeOf<T>::number())
            throw std::runtime_error("data_ptr: the tensor has another type than is asked for");
        return static_cast<T*>(slim::got<void*>(aoti_torch_get_data_ptr, handle()));
    }
    template <typename T>
    const T* const_data_ptr() const { return data_ptr<T>(); }
    template <typename T>
    T* mutable_data_ptr() const { return data_ptr<T>(); }

private:
    int64_t at(int64_t axis) const {
        int64_t rank = dim();
        if (axis < -rank || axis >= rank) throw std::out_of_range("Dimension out of range");
        return axis < 0 ? axis + rank : axis;
    }
    std::shared_ptr<AtenTensorOpaque> handle_;
};

inline Tensor empty_in_order(const IntArrayRef& sizes, const std::vector<size_t>& outer_first,
                             const TensorOptions& options) {
    std::vector<int64_t> strides(sizes.size());
    int64_t step = 1;
    for (size_t place = sizes.size(); place-- > 0;) {
        size_t axis = outer_first[place];
        strides[axis] = step;
        step *= sizes[axis] > 1 ? sizes[axis] : 1;
    }
    AtenTensorOpaque* made = nullptr;
    slim::check(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), strides.data(), options.dtype,
                                         options.device_type, options.device_index, &made));
    return Tensor(made);
}
inline std::vector<size_t> axes_of(const IntArrayRef& sizes) {
    std::vector<size_t> axes(sizes.size());
    for (size_t axis = 0; axis < axes.size(); axis++) axes[axis] = axis;
    return axes;
}
inline Tensor empty(const IntArrayRef& sizes, const TensorOptions& options) {
    return empty_in_order(sizes, axes_of(sizes), options);
}
inline Tensor zeros(const IntArrayRef& sizes, const TensorOptions& options) {
    Tensor made = empty(sizes, options);
    slim::check(aoti_torch_zero_(made.handle()));
    return made;
}
// Keeps the order of the strides, without holes.
inline Tensor empty_like(const Tensor& tensor) {
    IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
    std::vector<size_t> axes = axes_of(sizes);
    if (!tensor.is_contiguous())
        std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    return empty_in_order(sizes, axes, tensor.options());
}
inline Tensor zeros_like(const Tensor& tensor) {
    Tensor made = empty_like(tensor);
    slim::check(aoti_torch_zero_(made.handle()));
    return made;
}
}  // namespace torch

namespace at {
using torch::empty;
using torch::empty_like;
using torch::IntArrayRef;
using torch::Tensor;
using torch::zeros;
using torch::zeros_like;
}  // namespace at

namespace slim {
inline void write(std::ostream&) {}
template <typename First, typename... Others>
void write(std::ostream& stream, const First& first, const Others&... others) {
    stream << first;
    write(stream, others...);
}
template <typename... Parts>
void require(bool holds, const char* condition, const Parts&... parts) {
    if (holds) return;
    std::ostringstream text;
    if (sizeof...(parts) == 0) text << "Expected " << condition << " to be true, but got false.";
    write(text, parts...);
    throw std::runtime_error(text.str());
}
}  // namespace slim
#define TORCH_CHECK(condition, ...) slim::require(bool(condition), #condition, ##__VA_ARGS__)
