// The text of wgmma's instructions. PTX writes out all registers of D, N / 2 of them, so the text
// depends on N: the macros below compose it from groups of eight registers.
#ifndef ATTENTION_DEVICE_HOPPER_WGMMA_ASM_CUH_
#define ATTENTION_DEVICE_HOPPER_WGMMA_ASM_CUH_

// Names and operands of accumulators 8 i to 8 i + 7.
#define ATTNLAB_NAMES_0 "%0,%1,%2,%3,%4,%5,%6,%7"
#define ATTNLAB_NAMES_1 "%8,%9,%10,%11,%12,%13,%14,%15"
#define ATTNLAB_NAMES_2 "%16,%17,%18,%19,%20,%21,%22,%23"
#define ATTNLAB_NAMES_3 "%24,%25,%26,%27,%28,%29,%30,%31"
#define ATTNLAB_NAMES_4 "%32,%33,%34,%35,%36,%37,%38,%39"
#define ATTNLAB_NAMES_5 "%40,%41,%42,%43,%44,%45,%46,%47"
#define ATTNLAB_NAMES_6 "%48,%49,%50,%51,%52,%53,%54,%55"
#define ATTNLAB_NAMES_7 "%56,%57,%58,%59,%60,%61,%62,%63"
#define ATTNLAB_NAMES_8 "%64,%65,%66,%67,%68,%69,%70,%71"
#define ATTNLAB_NAMES_9 "%72,%73,%74,%75,%76,%77,%78,%79"
#define ATTNLAB_NAMES_10 "%80,%81,%82,%83,%84,%85,%86,%87"
#define ATTNLAB_NAMES_11 "%88,%89,%90,%91,%92,%93,%94,%95"
#define ATTNLAB_NAMES_12 "%96,%97,%98,%99,%100,%101,%102,%103"
#define ATTNLAB_NAMES_13 "%104,%105,%106,%107,%108,%109,%110,%111"
#define ATTNLAB_NAMES_14 "%112,%113,%114,%115,%116,%117,%118,%119"
#define ATTNLAB_NAMES_15 "%120,%121,%122,%123,%124,%125,%126,%127"
#define ATTNLAB_EIGHT(i)                                                                          \
  "+f"(x[8 * i]), "+f"(x[8 * i + 1]), "+f"(x[8 * i + 2]), "+f"(x[8 * i + 3]), "+f"(x[8 * i + 4]), \
      "+f"(x[8 * i + 5]), "+f"(x[8 * i + 6]), "+f"(x[8 * i + 7])

// By number of columns: all names, all operands, and the names of the six operands after them.
#define ATTNLAB_NAMES_OF_64 \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3
#define ATTNLAB_OPERANDS_OF_64 \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3)
#define ATTNLAB_A_64 "%32"
#define ATTNLAB_B_64 "%33"
#define ATTNLAB_C_64 "%34"
#define ATTNLAB_D_64 "%35"
#define ATTNLAB_E_64 "%36"
#define ATTNLAB_F_64 "%37"
#define ATTNLAB_NAMES_OF_80 \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3 "," ATTNLAB_NAMES_4
#define ATTNLAB_OPERANDS_OF_80 \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3), ATTNLAB_EIGHT(4)
#define ATTNLAB_A_80 "%40"
#define ATTNLAB_B_80 "%41"
#define ATTNLAB_C_80 "%42"
#define ATTNLAB_D_80 "%43"
#define ATTNLAB_E_80 "%44"
#define ATTNLAB_F_80 "%45"
#define ATTNLAB_NAMES_OF_96                                                                       \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3 "," ATTNLAB_NAMES_4 \
                  "," ATTNLAB_NAMES_5
#define ATTNLAB_OPERANDS_OF_96                                                              \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3), ATTNLAB_EIGHT(4), \
      ATTNLAB_EIGHT(5)
#define ATTNLAB_A_96 "%48"
#define ATTNLAB_B_96 "%49"
#define ATTNLAB_C_96 "%50"
#define ATTNLAB_D_96 "%51"
#define ATTNLAB_E_96 "%52"
#define ATTNLAB_F_96 "%53"
#define ATTNLAB_NAMES_OF_112                                                                      \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3 "," ATTNLAB_NAMES_4 \
                  "," ATTNLAB_NAMES_5 "," ATTNLAB_NAMES_6
#define ATTNLAB_OPERANDS_OF_112                                                             \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3), ATTNLAB_EIGHT(4), \
      ATTNLAB_EIGHT(5), ATTNLAB_EIGHT(6)
#define ATTNLAB_A_112 "%56"
#define ATTNLAB_B_112 "%57"
#define ATTNLAB_C_112 "%58"
#define ATTNLAB_D_112 "%59"
#define ATTNLAB_E_112 "%60"
#define ATTNLAB_F_112 "%61"
#define ATTNLAB_NAMES_OF_128                                                                      \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3 "," ATTNLAB_NAMES_4 \
                  "," ATTNLAB_NAMES_5 "," ATTNLAB_NAMES_6 "," ATTNLAB_NAMES_7
#define ATTNLAB_OPERANDS_OF_128                                                             \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3), ATTNLAB_EIGHT(4), \
      ATTNLAB_EIGHT(5), ATTNLAB_EIGHT(6), ATTNLAB_EIGHT(7)
#define ATTNLAB_A_128 "%64"
#define ATTNLAB_B_128 "%65"
#define ATTNLAB_C_128 "%66"
#define ATTNLAB_D_128 "%67"
#define ATTNLAB_E_128 "%68"
#define ATTNLAB_F_128 "%69"
#define ATTNLAB_NAMES_OF_192                                                                      \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3 "," ATTNLAB_NAMES_4 \
                  "," ATTNLAB_NAMES_5 "," ATTNLAB_NAMES_6 "," ATTNLAB_NAMES_7 "," ATTNLAB_NAMES_8 \
                  "," ATTNLAB_NAMES_9 "," ATTNLAB_NAMES_10 "," ATTNLAB_NAMES_11
#define ATTNLAB_OPERANDS_OF_192                                                                 \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3), ATTNLAB_EIGHT(4),     \
      ATTNLAB_EIGHT(5), ATTNLAB_EIGHT(6), ATTNLAB_EIGHT(7), ATTNLAB_EIGHT(8), ATTNLAB_EIGHT(9), \
      ATTNLAB_EIGHT(10), ATTNLAB_EIGHT(11)
#define ATTNLAB_A_192 "%96"
#define ATTNLAB_B_192 "%97"
#define ATTNLAB_C_192 "%98"
#define ATTNLAB_D_192 "%99"
#define ATTNLAB_E_192 "%100"
#define ATTNLAB_F_192 "%101"
#define ATTNLAB_NAMES_OF_256                                                                      \
  ATTNLAB_NAMES_0 "," ATTNLAB_NAMES_1 "," ATTNLAB_NAMES_2 "," ATTNLAB_NAMES_3 "," ATTNLAB_NAMES_4 \
                  "," ATTNLAB_NAMES_5 "," ATTNLAB_NAMES_6 "," ATTNLAB_NAMES_7 "," ATTNLAB_NAMES_8 \
                  "," ATTNLAB_NAMES_9 "," ATTNLAB_NAMES_10 "," ATTNLAB_NAMES_11                   \
                  "," ATTNLAB_NAMES_12 "," ATTNLAB_NAMES_13 "," ATTNLAB_NAMES_14                  \
                  "," ATTNLAB_NAMES_15
#define ATTNLAB_OPERANDS_OF_256                                                                 \
  ATTNLAB_EIGHT(0), ATTNLAB_EIGHT(1), ATTNLAB_EIGHT(2), ATTNLAB_EIGHT(3), ATTNLAB_EIGHT(4),     \
      ATTNLAB_EIGHT(5), ATTNLAB_EIGHT(6), ATTNLAB_EIGHT(7), ATTNLAB_EIGHT(8), ATTNLAB_EIGHT(9), \
      ATTNLAB_EIGHT(10), ATTNLAB_EIGHT(11), ATTNLAB_EIGHT(12), ATTNLAB_EIGHT(13),               \
      ATTNLAB_EIGHT(14), ATTNLAB_EIGHT(15)
#define ATTNLAB_A_256 "%128"
#define ATTNLAB_B_256 "%129"
#define ATTNLAB_C_256 "%130"
#define ATTNLAB_D_256 "%131"
#define ATTNLAB_E_256 "%132"
#define ATTNLAB_F_256 "%133"

// `types`: the columns of A, and the types of D, A and B. `transposes`: whether sums run along columns of
// A and of B; fp8 has no such choice.
#define ATTNLAB_WGMMA_SHARED(n, types, transposes)                                    \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " ATTNLAB_C_##n                        \
               ", 0;"                                                                 \
               "wgmma.mma_async.sync.aligned.m64n" #n types " {" ATTNLAB_NAMES_OF_##n \
               "}, " ATTNLAB_A_##n ", " ATTNLAB_B_##n ", p, 1, 1" transposes "; }"    \
               : ATTNLAB_OPERANDS_OF_##n                                              \
               : "l"(a), "l"(b), "r"(add))
#define ATTNLAB_WGMMA_REGISTERS(n, types, transposes)                                     \
  asm volatile("{ .reg .pred p; setp.ne.b32 p, " ATTNLAB_F_##n                            \
               ", 0;"                                                                     \
               "wgmma.mma_async.sync.aligned.m64n" #n types " {" ATTNLAB_NAMES_OF_##n     \
               "}, {" ATTNLAB_A_##n "," ATTNLAB_B_##n "," ATTNLAB_C_##n "," ATTNLAB_D_##n \
               "}, " ATTNLAB_E_##n ", p, 1, 1" transposes "; }"                           \
               : ATTNLAB_OPERANDS_OF_##n                                                  \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add))

#define ATTNLAB_WGMMA_TYPES(n, form, transposes)                  \
  if constexpr (kColumns == n) {                                  \
    if constexpr (std::is_same<T, __half>::value) {               \
      form(n, "k16.f32.f16.f16", transposes);                     \
    } else if constexpr (std::is_same<T, __nv_bfloat16>::value) { \
      form(n, "k16.f32.bf16.bf16", transposes);                   \
    } else if constexpr (std::is_same<T, __nv_fp8_e4m3>::value) { \
      form(n, "k32.f32.e4m3.e4m3", "");                           \
    } else {                                                      \
      static_assert(std::is_same<T, __nv_fp8_e5m2>::value);       \
      form(n, "k32.f32.e4m3.e5m2", "");                           \
    }                                                             \
  }
#define ATTNLAB_WGMMA_DISPATCH(form, transposes)                                         \
  static_assert(kColumns == 64 || kColumns == 80 || kColumns == 96 || kColumns == 112 || \
                    kColumns == 128 || kColumns == 192 || kColumns == 256,               \
                "no other width is written out here");                                   \
  ATTNLAB_WGMMA_TYPES(64, form, transposes)                                              \
  ATTNLAB_WGMMA_TYPES(80, form, transposes)                                              \
  ATTNLAB_WGMMA_TYPES(96, form, transposes)                                              \
  ATTNLAB_WGMMA_TYPES(112, form, transposes)                                             \
  ATTNLAB_WGMMA_TYPES(128, form, transposes)                                             \
  ATTNLAB_WGMMA_TYPES(192, form, transposes)                                             \
  ATTNLAB_WGMMA_TYPES(256, form, transposes)

#endif  // ATTENTION_DEVICE_HOPPER_WGMMA_ASM_CUH_
