package ghostuser

import "sexton/internal/fault"

// judgeStep says what an error of one step's statement means, and whether it comes of a row whose like the step's table
// has already.
func judgeStep(err error, s *step) (f fault.Fault, duplicate bool) {
	f = fault.Judge(err)
	f.Table = s.tableLabel
	return f, fault.DuplicateIn(err, s.table) || fault.DuplicateIn(err, s.leaves...)
}

// heldBy names who held the lock that a statement has waited for in vain, where that is known.
func heldBy(f fault.Fault, blocker string) fault.Fault {
	if f.Verdict == fault.LockTimeout && blocker != "" {
		f.Message += " (" + blocker + ")"
	}
	return f
}
