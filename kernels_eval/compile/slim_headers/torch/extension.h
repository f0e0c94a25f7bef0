// See torch/types.h in this folder.
#pragma once
#include <torch/types.h>
