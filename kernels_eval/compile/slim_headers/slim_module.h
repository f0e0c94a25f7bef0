// Functions on tensors and numbers as a Python module, without pybind11: what each argument is stands in the generated
// call. Python's own headers are read by slim_support.cpp alone.
#pragma once
#include <torch/types.h>

struct _object;
typedef struct _object PyObject;

namespace slim {
using Call = PyObject* (*)(PyObject* const* given);
struct Method {
    const char* name;
    PyObject* (*function)(PyObject* module, PyObject* const* given, long count);
};
torch::Tensor tensor(PyObject* given);
int64_t integer(PyObject* given);
double number(PyObject* given);
bool boolean(PyObject* given);
PyObject* python(const torch::Tensor& result);
PyObject* none();
// Calls with exceptions turned into Python's.
PyObject* called(Call call, PyObject* const* given, long count, long expected);
// Makes the module, once for each library.
PyObject* module(const char* name, const Method* methods, size_t count);
}  // namespace slim
