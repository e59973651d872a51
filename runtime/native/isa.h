// Which instruction set do the kernels use on this CPU?
#pragma once

#include <vector>

#include "kv_kernel.h"
#include "matmul_kernel.h"
#include "probe_kernel.h"
#include "row_kernel.h"

namespace starshade {

struct Isa {
  const char* name;
  MatmulKernels matmul;
  KvAttentionKernel kv_attention;  // a few rows that wait for memory
  KvAttentionKernel kv_attention_by_tiles;

  KvAttentionKernel attention_for(const KvAttentionTask& task) const {
    return task.by_tiles ? kv_attention_by_tiles : kv_attention;
  }
  KvWriteKernel kv_write;
  KvMergeKernel kv_merge;
  const RowKernels* rows;
  const ProbeKernels* probe;
};

// Those that are compiled in and that this CPU has, the best first; never empty.
const std::vector<Isa>& usable_isas();

}  // namespace starshade
