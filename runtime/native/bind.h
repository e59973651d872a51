// Which files add to the Python module?  bind.cpp holds the module itself.
#pragma once

#include <nanobind/nanobind.h>

namespace starshade {

void bind_matmul(nanobind::module_& module);

}  // namespace starshade
