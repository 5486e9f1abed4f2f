// One clear error for users who compile a public header as an older C++, before the compiler's own.
// The headers that all others depend on include this file first.
#ifndef ATTENTION_CORE_CXX17_H_
#define ATTENTION_CORE_CXX17_H_

#if !defined(__cplusplus) || __cplusplus < 201703L
#error "attnlab's headers need C++17 or later: compile with -std=c++17. From C: attention_c.h."
#endif

#endif  // ATTENTION_CORE_CXX17_H_
