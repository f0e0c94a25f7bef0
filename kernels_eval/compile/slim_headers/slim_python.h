// Functions on tensors and numbers as a Python module, without pybind11: what each argument is stands in the generated
// call. Handles of tensors pass through torch._C._aoti, which PyTorch's own compiler uses for the same.
#pragma once
#include <Python.h>

#include <torch/types.h>

namespace slim {
struct PythonError {};  // Python's error is set
inline PyObject* needed(PyObject* object) {
    if (object == nullptr) throw PythonError();
    return object;
}
inline PyObject* converter(const char* name) {
    PyObject* module = needed(PyImport_ImportModule("torch._C._aoti"));
    PyObject* function = PyObject_GetAttrString(module, name);
    Py_DECREF(module);
    return needed(function);
}
inline torch::Tensor tensor(PyObject* given) {
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
    return torch::Tensor(static_cast<AtenTensorOpaque*>(handle));
}
inline int64_t integer(PyObject* given) {
    PyObject* index = needed(PyNumber_Index(given));
    int64_t value = PyLong_AsLongLong(index);
    Py_DECREF(index);
    if (value == -1 && PyErr_Occurred()) throw PythonError();
    return value;
}
inline double number(PyObject* given) {
    double value = PyFloat_AsDouble(given);
    if (value == -1.0 && PyErr_Occurred()) throw PythonError();
    return value;
}
inline bool boolean(PyObject* given) {
    if (!PyBool_Check(given)) {
        PyErr_SetString(PyExc_TypeError, "expected True or False");
        throw PythonError();
    }
    return given == Py_True;
}
inline PyObject* python(const torch::Tensor& result) {
    static PyObject* convert = converter("alloc_tensors_by_stealing_from_void_ptrs");
    AtenTensorOpaque* handle = nullptr;
    check(aoti_torch_new_tensor_handle(result.handle(), &handle));
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
template <typename Call>
PyObject* called(Call call, Py_ssize_t given, Py_ssize_t expected) {
    if (given != expected) {
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, found %zd", expected, given);
        return nullptr;
    }
    try {
        return call();
    } catch (const PythonError&) {
    } catch (const std::out_of_range& error) {
        PyErr_SetString(PyExc_IndexError, error.what());
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}
}  // namespace slim
