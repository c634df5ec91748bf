#include <stdio.h>

int main(void)
{
    const int sum = 6 * 7;
    printf("six times seven is %d\n", sum);
    return sum == 42 ? 0 : 1;
}
