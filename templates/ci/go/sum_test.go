package sum

import "testing"

func TestOf(t *testing.T) {
	if got := Of(40, 2); got != 42 {
		t.Fatalf("40 + 2 is %d", got)
	}
}
