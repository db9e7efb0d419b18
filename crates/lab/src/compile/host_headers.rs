//! Headers of the host's C and C++ library, for a compiler that has none: what device code uses of them, nothing else.

/// Pairs of name and text. What NVRTC knows by itself, such as `printf`, `assert`, `size_t` and the mathematical functions, is in none.
pub(super) const STUBS: [(&str, &str); 34] = [
    ("algorithm", ""),
    ("assert.h", ""),
    ("cassert", ""),
    ("cfloat", FLOAT),
    ("chrono", ""),
    ("climits", LIMITS),
    ("cmath", MATH),
    ("cstddef", ""),
    ("cstdint", INTEGERS),
    ("cstdio", ""),
    ("cstdlib", ""),
    ("cstring", ""),
    ("cuda_profiler_api.h", ""),
    ("cuda_runtime.h", ""),
    ("cuda_runtime_api.h", ""),
    ("device_launch_parameters.h", ""),
    ("float.h", FLOAT),
    ("fstream", ""),
    ("iomanip", ""),
    ("iostream", ""),
    ("limits.h", LIMITS),
    ("math.h", MATH),
    ("memory.h", ""),
    ("random", ""),
    ("sstream", ""),
    ("stdbool.h", ""),
    ("stddef.h", ""),
    ("stdint.h", INTEGERS),
    ("stdio.h", ""),
    ("stdlib.h", ""),
    ("string", ""),
    ("string.h", ""),
    ("time.h", ""),
    ("vector", ""),
];

const INTEGERS: &str = "\
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
typedef long long intptr_t;
#define INT8_MIN (-128)
#define INT8_MAX 127
#define UINT8_MAX 255
#define INT16_MIN (-32768)
#define INT16_MAX 32767
#define UINT16_MAX 65535
#define INT32_MIN (-2147483647 - 1)
#define INT32_MAX 2147483647
#define UINT32_MAX 4294967295u
#define INT64_MIN (-9223372036854775807ll - 1)
#define INT64_MAX 9223372036854775807ll
#define UINT64_MAX 18446744073709551615ull
";

const LIMITS: &str = "\
#pragma once
#define CHAR_BIT 8
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
";

const FLOAT: &str = "\
#pragma once
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define DBL_MAX 1.7976931348623157e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-16
#define DBL_DIG 15
#define DBL_MANT_DIG 53
";

const MATH: &str = "\
#pragma once
#ifndef INFINITY
#define INFINITY __int_as_float(0x7f800000)
#endif
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#endif
#ifndef M_PI
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
";
