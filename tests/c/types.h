/* The type tables of OpenSHMEM 1.6 as X-macros: X(TYPENAME, C type). Written from the specification,
 * not from the library's own table, so that the two check each other. */
#ifndef TYPES_H
#define TYPES_H

#include <stddef.h>
#include <stdint.h>

/* Table "standard AMO types", also of waiting and testing. */
#define STD12(X)                                                                                   \
    X(int, int) X(long, long) X(longlong, long long)                                               \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long)                 \
    X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t)                    \
    X(size, size_t) X(ptrdiff, ptrdiff_t)

/* Table "extended AMO types", without the standard ones. */
#define EXT2(X) X(float, float) X(double, double)

/* Table "bitwise AMO types". */
#define BIT7(X)                                                                                    \
    X(uint, unsigned int) X(ulong, unsigned long) X(ulonglong, unsigned long long)                 \
    X(int32, int32_t) X(int64, int64_t) X(uint32, uint32_t) X(uint64, uint64_t)

/* Table "standard RMA types". */
#define RMA24(X)                                                                                   \
    STD12(X) EXT2(X) X(longdouble, long double)                                                    \
    X(char, char) X(schar, signed char) X(short, short)                                            \
    X(uchar, unsigned char) X(ushort, unsigned short)                                              \
    X(int8, int8_t) X(int16, int16_t) X(uint8, uint8_t) X(uint16, uint16_t)

/* Types of bitwise reductions. */
#define RED14(X)                                                                                   \
    X(uchar, unsigned char) X(ushort, unsigned short) X(uint, unsigned int)                        \
    X(ulong, unsigned long) X(ulonglong, unsigned long long)                                       \
    X(int8, int8_t) X(int16, int16_t) X(int32, int32_t) X(int64, int64_t)                          \
    X(uint8, uint8_t) X(uint16, uint16_t) X(uint32, uint32_t) X(uint64, uint64_t)                  \
    X(size, size_t)

/* What sums and products have beyond RMA24. */
#define COMPLEX2(X) X(complexd, double _Complex) X(complexf, float _Complex)

/* Types of the deprecated reductions on active sets. */
#define SET4(X) X(short, short) X(int, int) X(long, long) X(longlong, long long)
#define SET7(X) SET4(X) X(float, float) X(double, double) X(longdouble, long double)

/* Sizes of the routines that are named by bits. */
#define BITS5(X) X(8) X(16) X(32) X(64) X(128)

#endif
