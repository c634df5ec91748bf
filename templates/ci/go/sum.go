package sum

// Of adds two numbers.
func Of(a, b int) int { return a + b }
