// The part of PyTorch's C++ that most extensions use: nvcc reads it in a hundredth of a second, PyTorch's own headers in
// ten seconds. What is not declared here does not compile, and is then built with PyTorch's headers: nothing here may
// mean anything else than it does there. Definitions are in slim_support.cpp, which is compiled once for all extensions.
#pragma once
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#ifdef SLIM_STD
#include <algorithm>
#include <array>
#include <cassert>
#include <cfloat>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#endif

#include <cuda_runtime.h>

namespace slim {
struct Held;  // a tensor's handle, counted
Held* keep(Held* held);
void drop(Held* held);
[[noreturn]] void fail(const char* text);
[[noreturn]] void fail_on_type(const char* name);
enum class Type { float32, float64, int32, int64 };
template <typename T>
struct TypeOf;  // other types are built with PyTorch's headers
template <>
struct TypeOf<float> {
    static constexpr Type type = Type::float32;
};
template <>
struct TypeOf<double> {
    static constexpr Type type = Type::float64;
};
template <>
struct TypeOf<int32_t> {
    static constexpr Type type = Type::int32;
};
template <>
struct TypeOf<int64_t> {
    static constexpr Type type = Type::int64;
};
void* data(Held* held, Type type);
}  // namespace slim

namespace torch {
class IntArrayRef {
public:
    IntArrayRef(const int64_t* values, size_t size) : size_(size) {
        if (size > most) slim::fail("a tensor has at most 64 axes");
        for (size_t axis = 0; axis < size; axis++) values_[axis] = values[axis];
    }
    IntArrayRef(std::initializer_list<int64_t> values) : IntArrayRef(values.begin(), values.size()) {}
#ifdef SLIM_STD
    IntArrayRef(const std::vector<int64_t>& values) : IntArrayRef(values.data(), values.size()) {}
    std::vector<int64_t> vec() const { return {begin(), end()}; }
#endif
    size_t size() const { return size_; }
    int64_t operator[](size_t index) const { return values_[index]; }
    const int64_t* data() const { return values_; }
    const int64_t* begin() const { return values_; }
    const int64_t* end() const { return values_ + size_; }
    bool operator==(const IntArrayRef& other) const {
        if (size_ != other.size_) return false;
        for (size_t axis = 0; axis < size_; axis++)
            if (values_[axis] != other.values_[axis]) return false;
        return true;
    }
    bool operator!=(const IntArrayRef& other) const { return !(*this == other); }

private:
    static constexpr size_t most = 64;
    int64_t values_[most];
    size_t size_;
};

// Numbers as libtorch has them, which are not written here: constants are filled in when the library is loaded.
struct ScalarType {
    int32_t number;
    bool operator==(const ScalarType& other) const { return number == other.number; }
    bool operator!=(const ScalarType& other) const { return number != other.number; }
};
extern const ScalarType kFloat32, kFloat64, kInt32, kInt64, kFloat16, kBFloat16, kBool;
extern const ScalarType kFloat, kDouble, kInt, kLong, kHalf;

struct DeviceType {
    int32_t number;
    bool operator==(const DeviceType& other) const { return number == other.number; }
    bool operator!=(const DeviceType& other) const { return number != other.number; }
};
extern const DeviceType kCPU, kCUDA;

class Device {
public:
    Device(int32_t type, int32_t index) : type_{type}, index_(index) {}
    DeviceType type() const { return type_; }
    int32_t index() const { return index_; }
    bool is_cuda() const { return type_ == kCUDA; }
    bool is_cpu() const { return type_ == kCPU; }
    bool operator==(const Device& other) const { return type_ == other.type_ && index_ == other.index_; }
    bool operator!=(const Device& other) const { return !(*this == other); }

private:
    DeviceType type_;
    int32_t index_;
};

class TensorOptions {
public:
    TensorOptions(ScalarType type, Device device) : type_(type), device_(device) {}
    TensorOptions dtype(ScalarType type) const { return {type, device_}; }
    TensorOptions device(Device device) const { return {type_, device}; }
    ScalarType type() const { return type_; }
    Device where() const { return device_; }

private:
    ScalarType type_;
    Device device_;
};

class Tensor {
public:
    explicit Tensor(slim::Held* owned) : held_(owned) {}
    Tensor(const Tensor& other) : held_(slim::keep(other.held_)) {}
    Tensor(Tensor&& other) noexcept : held_(other.held_) { other.held_ = nullptr; }
    ~Tensor() { slim::drop(held_); }
    Tensor& operator=(Tensor other) noexcept {
        slim::Held* mine = held_;
        held_ = other.held_;
        other.held_ = mine;
        return *this;
    }
    slim::Held* held() const { return held_; }
    int64_t dim() const;
    int64_t numel() const;
    IntArrayRef sizes() const;
    IntArrayRef strides() const;
    int64_t size(int64_t axis) const;
    int64_t stride(int64_t axis) const;
    bool is_contiguous() const;
    Tensor contiguous() const;
    ScalarType scalar_type() const;
    ScalarType dtype() const { return scalar_type(); }
    Device device() const;
    bool is_cuda() const { return device().is_cuda(); }
    bool is_cpu() const { return device().is_cpu(); }
    TensorOptions options() const;
    template <typename T>
    T* data_ptr() const {
        return static_cast<T*>(slim::data(held_, slim::TypeOf<T>::type));
    }
    template <typename T>
    const T* const_data_ptr() const { return data_ptr<T>(); }
    template <typename T>
    T* mutable_data_ptr() const { return data_ptr<T>(); }

private:
    slim::Held* held_;
};

Tensor empty(const IntArrayRef& sizes, const TensorOptions& options);
Tensor zeros(const IntArrayRef& sizes, const TensorOptions& options);
Tensor empty_like(const Tensor& tensor);
Tensor zeros_like(const Tensor& tensor);
}  // namespace torch

namespace at {
using torch::Device;
using torch::DeviceType;
using torch::empty;
using torch::empty_like;
using torch::IntArrayRef;
using torch::kBFloat16;
using torch::kBool;
using torch::kCPU;
using torch::kCUDA;
using torch::kDouble;
using torch::kFloat;
using torch::kHalf;
using torch::kInt;
using torch::kLong;
using torch::ScalarType;
using torch::Tensor;
using torch::TensorOptions;
using torch::zeros;
using torch::zeros_like;
}  // namespace at

namespace slim {
// The message of a check that failed. Parts are written as std::ostream writes them.
class Message {
public:
    Message();
    ~Message();
    void add(const char* part);
    void add(char part);
    void add(bool part);
    void add(int part);
    void add(long part);
    void add(long long part);
    void add(unsigned part);
    void add(unsigned long part);
    void add(unsigned long long part);
    void add(double part);
#ifdef SLIM_STD
    void add(const std::string& part) { add(part.c_str()); }
#endif
    [[noreturn]] void raise();

private:
    Message(const Message&);
    void* text_;
};
template <typename... Parts>
[[noreturn]] void refuse(const char* condition, const Parts&... parts) {
    Message message;
    if (sizeof...(parts) == 0) {
        message.add("Expected ");
        message.add(condition);
        message.add(" to be true, but got false.");
    }
    (message.add(parts), ...);
    message.raise();
}
}  // namespace slim
#define TORCH_CHECK(condition, ...)                                   \
    do {                                                              \
        if (!(condition)) slim::refuse(#condition, ##__VA_ARGS__);    \
    } while (false)
#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...)                              \
    [&] {                                                                        \
        const torch::ScalarType slim_type = (TYPE);                              \
        if (slim_type == torch::kDouble) {                                       \
            using scalar_t = double;                                             \
            return __VA_ARGS__();                                                \
        }                                                                        \
        if (slim_type != torch::kFloat) slim::fail_on_type(NAME);                \
        using scalar_t = float;                                                  \
        return __VA_ARGS__();                                                    \
    }()
