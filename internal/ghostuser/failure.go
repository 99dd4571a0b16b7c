package ghostuser

import "sexton/internal/fault"

// judgeStep says what an error of one step's statement means, and whether it comes of a row whose like the step's table
// has already.
func judgeStep(err error, s *step) (f fault.Fault, duplicate bool) {
	f = fault.Judge(err)
	f.Table = s.tableLabel
	return f, fault.DuplicateIn(err, s.table) || fault.DuplicateIn(err, s.leaves...)
}
