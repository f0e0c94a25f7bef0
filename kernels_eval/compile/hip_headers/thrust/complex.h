// Declarations of rocThrust's complex numbers, which PyTorch's headers name. For installations of ROCm without it; last
// in the order of include folders. Device code of candidates that is compiled and not linked needs no definitions.
#pragma once
namespace thrust {
template <typename T>
struct complex {
  __host__ __device__ complex(T real = T(), T imag = T()) : re(real), im(imag) {}
  template <typename U>
  __host__ __device__ complex(const complex<U>& other) : re(other.real()), im(other.imag()) {}
  __host__ __device__ T real() const { return re; }
  __host__ __device__ T imag() const { return im; }

 private:
  T re, im;
};

template <typename T>
__host__ __device__ T abs(const complex<T>&);
template <typename T>
__host__ __device__ complex<T> polar(const T&, const T& = T());
template <typename T>
__host__ __device__ complex<T> pow(const complex<T>&, const complex<T>&);
template <typename T>
__host__ __device__ complex<T> pow(const complex<T>&, const T&);
template <typename T>
__host__ __device__ complex<T> pow(const T&, const complex<T>&);

#define KERNELMILL_FUNCTION(name) \
  template <typename T>           \
  __host__ __device__ complex<T> name(const complex<T>&);
KERNELMILL_FUNCTION(exp)
KERNELMILL_FUNCTION(log)
KERNELMILL_FUNCTION(log10)
KERNELMILL_FUNCTION(sqrt)
KERNELMILL_FUNCTION(sin)
KERNELMILL_FUNCTION(cos)
KERNELMILL_FUNCTION(tan)
KERNELMILL_FUNCTION(asin)
KERNELMILL_FUNCTION(acos)
KERNELMILL_FUNCTION(atan)
KERNELMILL_FUNCTION(sinh)
KERNELMILL_FUNCTION(cosh)
KERNELMILL_FUNCTION(tanh)
KERNELMILL_FUNCTION(asinh)
KERNELMILL_FUNCTION(acosh)
KERNELMILL_FUNCTION(atanh)
#undef KERNELMILL_FUNCTION
}  // namespace thrust
