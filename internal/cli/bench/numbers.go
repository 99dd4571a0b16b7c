package bench

import (
	"math"
	"slices"
)

// median returns the median of at least one number, the lower one of two.
func median[N ~int64 | ~float64](numbers []N) N { return quantile(numbers, 0.5) }

// quantile returns a quantile of at least one number, the lower one of two.
func quantile[N ~int64 | ~float64](numbers []N, share float64) N {
	return slices.Sorted(slices.Values(numbers))[int(share*float64(len(numbers)-1))]
}

// ratio returns 0 if the base is 0.
func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return round(a/b, 4)
}

func round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
