/* A program that calls nothing of the library. */
#include <stdio.h>

int main(void)
{
    puts("nothing to do");
    return 0;
}
