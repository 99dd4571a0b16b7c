package bench

import (
	"math"
	"slices"
)

// median returns the median of a list that is not empty. For an even number of elements,
// it is the lower of the two in the middle.
func median[N ~int64 | ~float64](numbers []N) N { return quantile(numbers, 0.5) }

// quantile returns a quantile of a list that is not empty. If it falls between two
// elements, it is the lower one.
func quantile[N ~int64 | ~float64](numbers []N, share float64) N {
	return slices.Sorted(slices.Values(numbers))[int(share*float64(len(numbers)-1))]
}

// ratio returns a/b, rounded to four digits, or 0 if b is 0.
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
