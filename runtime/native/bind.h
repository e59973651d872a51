// Which files add to the Python module?  bind.cpp holds the module itself.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstddef>
#include <string>

#include "kv_layout.h"

namespace starshade {

void bind_matmul(nanobind::module_& module);
void bind_model(nanobind::module_& module);
void bind_kv(nanobind::module_& module);
void bind_probe(nanobind::module_& module);

// Contiguous, in host memory.
template <class Item, std::size_t DIMS>
using Array = nanobind::ndarray<Item, nanobind::ndim<DIMS>, nanobind::c_contig, nanobind::device::cpu>;

// f32, bf16 or int8.  Throws std::invalid_argument.
KvType parse_kv_type(const std::string& name);

}  // namespace starshade
