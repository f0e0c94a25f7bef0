// What slim_headers declare, on libtorch's stable C interface (torch/csrc/inductor/aoti_torch/c/shim.h) and Python's.
// Compiled once for all extensions, and linked into each. Handles of tensors pass through torch._C._aoti, which
// PyTorch's own compiler uses for the same.
#include <Python.h>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <slim_module.h>

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
int32_t aoti_torch_copy_(AtenTensorOpaque*, AtenTensorOpaque*, int32_t);
int32_t aoti_torch_device_type_cpu();
int32_t aoti_torch_device_type_cuda();
int32_t aoti_torch_dtype_bfloat16();
int32_t aoti_torch_dtype_bool();
int32_t aoti_torch_dtype_float16();
int32_t aoti_torch_dtype_float32();
int32_t aoti_torch_dtype_float64();
int32_t aoti_torch_dtype_int32();
int32_t aoti_torch_dtype_int64();
int32_t aoti_torch_empty_strided(
    int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, AtenTensorOpaque**);
int32_t aoti_torch_zero_(AtenTensorOpaque*);
}

namespace slim {
struct Held {
    AtenTensorOpaque* handle;
    std::atomic<long> count{1};
};
static Held* held(AtenTensorOpaque* owned) { return new Held{owned}; }
Held* keep(Held* held) {
    if (held != nullptr) held->count.fetch_add(1, std::memory_order_relaxed);
    return held;
}
void drop(Held* held) {
    if (held == nullptr || held->count.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    aoti_torch_delete_tensor_object(held->handle);
    delete held;
}
void fail(const char* text) { throw std::runtime_error(text); }
void fail_on_type(const char* name) { fail(("\"" + std::string(name) + "\" not implemented for this type").c_str()); }
static void check(int32_t error) {
    if (error != 0) fail("an operation of PyTorch failed; what was wrong is on standard error");
}
template <typename Value, typename Get>
static Value got(Get get, const torch::Tensor& tensor) {
    Value value;
    check(get(tensor.held()->handle, &value));
    return value;
}
static int32_t number_of(Type type) {
    switch (type) {
        case Type::float32: return aoti_torch_dtype_float32();
        case Type::float64: return aoti_torch_dtype_float64();
        case Type::int32: return aoti_torch_dtype_int32();
        default: return aoti_torch_dtype_int64();
    }
}
void* data(Held* held, Type type) {
    int32_t found;
    check(aoti_torch_get_dtype(held->handle, &found));
    if (found != number_of(type)) fail("data_ptr: the tensor has another type than is asked for");
    void* address;
    check(aoti_torch_get_data_ptr(held->handle, &address));
    return address;
}
}  // namespace slim

namespace torch {
const ScalarType kFloat32{aoti_torch_dtype_float32()}, kFloat64{aoti_torch_dtype_float64()};
const ScalarType kInt32{aoti_torch_dtype_int32()}, kInt64{aoti_torch_dtype_int64()};
const ScalarType kFloat16{aoti_torch_dtype_float16()}, kBFloat16{aoti_torch_dtype_bfloat16()};
const ScalarType kBool{aoti_torch_dtype_bool()};
const ScalarType kFloat = kFloat32, kDouble = kFloat64, kInt = kInt32, kLong = kInt64, kHalf = kFloat16;
const DeviceType kCPU{aoti_torch_device_type_cpu()}, kCUDA{aoti_torch_device_type_cuda()};
int64_t Tensor::dim() const { return slim::got<int64_t>(aoti_torch_get_dim, *this); }
int64_t Tensor::numel() const { return slim::got<int64_t>(aoti_torch_get_numel, *this); }
IntArrayRef Tensor::sizes() const { return {slim::got<int64_t*>(aoti_torch_get_sizes, *this), size_t(dim())}; }
IntArrayRef Tensor::strides() const { return {slim::got<int64_t*>(aoti_torch_get_strides, *this), size_t(dim())}; }
static int64_t place(const Tensor& tensor, int64_t axis) {
    int64_t rank = tensor.dim();
    if (axis < -rank || axis >= rank) throw std::out_of_range("Dimension out of range");
    return axis < 0 ? axis + rank : axis;
}
int64_t Tensor::size(int64_t axis) const {
    return slim::got<int64_t*>(aoti_torch_get_sizes, *this)[place(*this, axis)];
}
int64_t Tensor::stride(int64_t axis) const {
    return slim::got<int64_t*>(aoti_torch_get_strides, *this)[place(*this, axis)];
}
bool Tensor::is_contiguous() const { return slim::got<bool>(aoti_torch_is_contiguous, *this); }
ScalarType Tensor::scalar_type() const { return {slim::got<int32_t>(aoti_torch_get_dtype, *this)}; }
Device Tensor::device() const {
    return {slim::got<int32_t>(aoti_torch_get_device_type, *this), slim::got<int32_t>(aoti_torch_get_device_index, *this)};
}
TensorOptions Tensor::options() const { return {scalar_type(), device()}; }

// Axes from the outermost to the innermost.
static Tensor empty_in_order(const IntArrayRef& sizes, const std::vector<size_t>& axes, const TensorOptions& options) {
    std::vector<int64_t> strides(sizes.size());
    int64_t step = 1;
    for (size_t place = sizes.size(); place-- > 0;) {
        size_t axis = axes[place];
        strides[axis] = step;
        step *= sizes[axis] > 1 ? sizes[axis] : 1;
    }
    AtenTensorOpaque* made = nullptr;
    slim::check(aoti_torch_empty_strided(int64_t(sizes.size()), sizes.data(), strides.data(), options.type().number,
                                         options.where().type().number, options.where().index(), &made));
    return Tensor(slim::held(made));
}
static std::vector<size_t> axes_of(const IntArrayRef& sizes) {
    std::vector<size_t> axes(sizes.size());
    for (size_t axis = 0; axis < axes.size(); axis++) axes[axis] = axis;
    return axes;
}
static Tensor zeroed(const Tensor& tensor) {
    slim::check(aoti_torch_zero_(tensor.held()->handle));
    return tensor;
}
Tensor empty(const IntArrayRef& sizes, const TensorOptions& options) {
    return empty_in_order(sizes, axes_of(sizes), options);
}
Tensor zeros(const IntArrayRef& sizes, const TensorOptions& options) { return zeroed(empty(sizes, options)); }
// Keeps the order of the strides, without holes.
Tensor empty_like(const Tensor& tensor) {
    IntArrayRef sizes = tensor.sizes(), strides = tensor.strides();
    std::vector<size_t> axes = axes_of(sizes);
    if (!tensor.is_contiguous())
        std::stable_sort(axes.begin(), axes.end(), [&](size_t a, size_t b) { return strides[a] > strides[b]; });
    return empty_in_order(sizes, axes, tensor.options());
}
Tensor zeros_like(const Tensor& tensor) { return zeroed(empty_like(tensor)); }
Tensor Tensor::contiguous() const {
    if (is_contiguous()) return *this;
    Tensor made = empty(sizes(), options());
    slim::check(aoti_torch_copy_(made.held()->handle, held()->handle, 0));
    return made;
}
}  // namespace torch

namespace slim {
static std::ostringstream& stream(void* text) { return *static_cast<std::ostringstream*>(text); }
Message::Message() : text_(new std::ostringstream) {}
Message::~Message() { delete &stream(text_); }
void Message::add(const char* part) { stream(text_) << part; }
void Message::add(char part) { stream(text_) << part; }
void Message::add(bool part) { stream(text_) << part; }
void Message::add(int part) { stream(text_) << part; }
void Message::add(long part) { stream(text_) << part; }
void Message::add(long long part) { stream(text_) << part; }
void Message::add(unsigned part) { stream(text_) << part; }
void Message::add(unsigned long part) { stream(text_) << part; }
void Message::add(unsigned long long part) { stream(text_) << part; }
void Message::add(double part) { stream(text_) << part; }
void Message::raise() { throw std::runtime_error(stream(text_).str()); }

struct PythonError {};  // Python's error is set
static PyObject* needed(PyObject* object) {
    if (object == nullptr) throw PythonError();
    return object;
}
static PyObject* converter(const char* name) {
    PyObject* module = needed(PyImport_ImportModule("torch._C._aoti"));
    PyObject* function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return needed(function);
}
torch::Tensor tensor(PyObject* given) {
    static PyObject* convert = converter("unsafe_alloc_void_ptrs_from_tensors");
    PyObject* list = needed(PyList_New(1));
    Py_INCREF(given);
    PyList_SET_ITEM(list, 0, given);
    PyObject* capsules = PyObject_CallFunctionObjArgs(convert, list, nullptr);
    Py_DECREF(list);
    needed(capsules);
    void* handle = PyCapsule_GetPointer(PyList_GetItem(capsules, 0), nullptr);
    Py_DECREF(capsules);
    if (handle == nullptr) throw PythonError();
    return torch::Tensor(held(static_cast<AtenTensorOpaque*>(handle)));
}
int64_t integer(PyObject* given) {
    PyObject* index = needed(PyNumber_Index(given));
    int64_t value = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return value;
}
double number(PyObject* given) {
    double value = PyFloat_AsDouble(given);
    if (value == -1.0 && PyErr_Occurred()) throw PythonError();
    return value;
}
bool boolean(PyObject* given) {
    if (!PyBool_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "expected True or False");
        throw PythonError();
    }
    return given == Py_True;
}
PyObject* python(const torch::Tensor& result) {
    static PyObject* convert = converter("alloc_tensors_by_stealing_from_void_ptrs");
    AtenTensorOpaque* handle = nullptr;
    check(aoti_torch_new_tensor_handle(result.held()->handle, &handle));
    PyObject* capsule = needed(PyCapsule_New(handle, nullptr, nullptr));
    PyObject* list = needed(PyList_New(1));
    PyList_SET_ITEM(list, 0, capsule);
    PyObject* tensors = PyObject_CallFunctionObjArgs(convert, list, nullptr);
    Py_DECREF(list);
    needed(tensors);
    PyObject* made = PyList_GetItem(tensors, 0);
    Py_XINCREF(made);
    Py_DECREF(tensors);
    return needed(made);
}
PyObject* none() { Py_RETURN_NONE; }
PyObject* called(Call call, PyObject* const* given, long count, long expected) {
    if (count != expected) {
        PyErr_Format(PyExc_TypeError, "expected %ld arguments, found %ld", expected, count);
        return nullptr;
    }
    try {
        return call(given);
    } catch (const PythonError&) {
    } catch (const std::out_of_range& error) {
        PyErr_SetString(PyExc_IndexError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}
PyObject* module(const char* name, const Method* methods, size_t count) {
    static std::vector<PyMethodDef> table;
    static PyModuleDef definition = {PyModuleDef_HEAD_INIT, name, nullptr, -1, nullptr};
    if (table.empty()) {
        for (size_t number = 0; number < count; number++)
            table.push_back({methods[number].name, reinterpret_cast<PyCFunction>(methods[number].function),
                             METH_FASTCALL, nullptr});
        table.push_back({nullptr, nullptr, 0, nullptr});
        definition.m_methods = table.data();
    }
    return PyModule_Create(&definition);
}
}  // namespace slim
