// CUDA C++ on a CPU, as far as the generated kernels go: threads of a block are fibres that run one after the other until
// they wait at a barrier or exchange a value with their warp. Written from the CUDA C++ Programming Guide, independently
// of what writes the kernels. Memory that nobody wrote is NaN, and so is what lies beside a tensor.
#pragma once
#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

struct dim3 {
    unsigned x, y, z;
    dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct alignas(16) float4 {
    float x, y, z, w;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }

namespace emulation {
enum State { READY, BARRIER, SHUFFLE, DONE };
struct Fibre {
    ucontext_t first;
    jmp_buf point;
    std::unique_ptr<char[]> stack{new char[65536]};
    dim3 index;
    State state;
    bool started;
    float given, received;
    int across;
};
inline std::vector<Fibre> fibres(1024);
inline std::function<void()> kernel;
inline jmp_buf scheduler;
inline Fibre* current;
inline dim3 block_index, block_size, grid_size;
inline std::vector<float4> shared(16384);
inline std::string fault;
inline bool backwards;

inline void wait(State state) {
    current->state = state;
    if (_setjmp(current->point) == 0) _longjmp(scheduler, 1);
}
inline void entry() {
    kernel();
    current->state = DONE;
    _longjmp(scheduler, 1);
}
inline void resume(Fibre& fibre) {
    current = &fibre;
    if (_setjmp(scheduler) != 0) return;
    if (fibre.started) _longjmp(fibre.point, 1);
    fibre.started = true;
    setcontext(&fibre.first);
}
inline void run_block(int threads) {
    for (int i = 0; i < threads; i++) {
        Fibre& fibre = fibres[i];
        getcontext(&fibre.first);
        fibre.first.uc_stack.ss_sp = fibre.stack.get();
        fibre.first.uc_stack.ss_size = 65536;
        fibre.first.uc_link = nullptr;
        makecontext(&fibre.first, entry, 0);
        fibre.index = dim3(i % block_size.x, i / block_size.x % block_size.y, i / (block_size.x * block_size.y));
        fibre.state = READY;
        fibre.started = false;
    }
    for (;;) {
        for (int i = 0; i < threads; i++) {
            Fibre& fibre = fibres[backwards ? threads - 1 - i : i];
            if (fibre.state == READY) resume(fibre);
        }
        int waiting = 0, done = 0;
        bool exchanged = false;
        for (int first = 0; first < threads; first += 32) {
            int lanes = 0, size = threads - first < 32 ? threads - first : 32;
            for (int i = 0; i < size; i++) lanes += fibres[first + i].state == SHUFFLE;
            if (lanes == 32) {
                for (int i = 0; i < 32; i++) fibres[first + i].received = fibres[first + (i ^ fibres[first + i].across)].given;
                for (int i = 0; i < 32; i++) fibres[first + i].state = READY;
                exchanged = true;
            }
        }
        if (exchanged) continue;
        for (int i = 0; i < threads; i++) {
            waiting += fibres[i].state == BARRIER;
            done += fibres[i].state == DONE;
        }
        if (done == threads) return;
        if (waiting != threads) {
            fault = "some threads wait at a barrier or for their warp, others do not come";
            return;
        }
        for (int i = 0; i < threads; i++) fibres[i].state = READY;
    }
}
inline void launch(dim3 grid, dim3 block, size_t bytes, std::function<void()> body) {
    int threads = block.x * block.y * block.z;
    if (threads < 1 || threads > 1024 || bytes > 49152 || grid.x < 1 || grid.y < 1 || grid.y > 65535) {
        fault = "a launch that a GPU refuses";
        return;
    }
    kernel = body;
    block_size = block;
    grid_size = grid;
    for (unsigned y = 0; y < grid.y; y++)
        for (unsigned x = 0; x < grid.x && fault.empty(); x++) {
            block_index = dim3(x, y);
            for (size_t i = 0; i < (bytes + 15) / 16; i++) shared[i] = make_float4(NAN, NAN, NAN, NAN);
            run_block(threads);
        }
}
inline void launch(dim3 grid, dim3 block, std::function<void()> body) { launch(grid, block, 0, body); }
inline void* dynamic_shared() { return shared.data(); }
}  // namespace emulation

inline void __syncthreads() { emulation::wait(emulation::BARRIER); }
inline float __shfl_xor_sync(unsigned mask, float value, int across) {
    if (mask != 0xffffffffu) emulation::fault = "a shuffle without the whole warp";
    emulation::Fibre* self = emulation::current;
    self->given = value;
    self->across = across;
    emulation::wait(emulation::SHUFFLE);
    return self->received;
}

#define __global__ static
#define __device__ static
#define __shared__ static
#define threadIdx (emulation::current->index)
#define blockIdx emulation::block_index
#define blockDim emulation::block_size
#define gridDim emulation::grid_size

// The part of PyTorch that a host function uses.
namespace torch {
constexpr int64_t BESIDE = 64;
struct Options {};
struct Tensor {
    std::vector<int64_t> sizes;
    std::shared_ptr<float> owned;
    float* data;
    int64_t size(int64_t axis) const { return sizes.at(axis); }
    int64_t numel() const {
        int64_t count = 1;
        for (int64_t size : sizes) count *= size;
        return count;
    }
    Options options() const { return {}; }
    template <typename T>
    T* data_ptr() const { return data; }
};
inline std::vector<Tensor> made;
inline Tensor empty(std::initializer_list<int64_t> sizes, Options) {
    Tensor tensor{sizes, nullptr, nullptr};
    size_t count = tensor.numel() + 2 * BESIDE;
    float* memory = static_cast<float*>(aligned_alloc(64, (count * sizeof(float) + 63) / 64 * 64));
    for (size_t i = 0; i < count; i++) memory[i] = NAN;
    tensor.owned.reset(memory, free);
    tensor.data = memory + BESIDE;
    made.push_back(tensor);
    return tensor;
}
}  // namespace torch

namespace emulation {
struct Argument {
    float* data;
    int64_t rank, sizes[2];
};
inline torch::Tensor tensor_of(const Argument& argument) {
    return {std::vector<int64_t>(argument.sizes, argument.sizes + argument.rank), nullptr, argument.data};
}
inline torch::Tensor result;
inline void finish(const torch::Tensor& out) {
    result = out;
    for (const torch::Tensor& tensor : torch::made)
        for (int64_t i = 0; i < torch::BESIDE; i++)
            if (!std::isnan(tensor.data[-1 - i]) || !std::isnan(tensor.data[tensor.numel() + i]))
                fault = "a kernel wrote beside a tensor";
    torch::made.clear();
}
}  // namespace emulation

extern "C" {
inline void emulation_begin(int backwards) {
    emulation::fault.clear();
    emulation::backwards = backwards;
}
}
