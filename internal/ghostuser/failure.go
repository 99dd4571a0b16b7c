package ghostuser

import (
	"fmt"

	"sexton/internal/fault"
)

// judgeStep says what an error of one step's statement means, and whether it comes of a row whose like the step's table
// has already.
func judgeStep(err error, s *step) (f fault.Fault, duplicate bool) {
	f = fault.Judge(err)
	f.Table = s.tableLabel
	return f, fault.DuplicateIn(err, s.table) || fault.DuplicateIn(err, s.leaves...)
}

// tooSlow says what to look for where not even one row can be changed in time. Rows that go with it by foreign keys of the
// database are out of reach: they go in the same statement.
func tooSlow(f fault.Fault, s *step) fault.Fault {
	if f.Verdict == fault.Timeout {
		f.Message += fmt.Sprintf(": a single row takes longer; look at its triggers, and at foreign keys that refer to %s with an action", s.tableLabel)
	}
	return f
}

// heldBy names who held the lock that a statement has waited for in vain, where that is known.
func heldBy(f fault.Fault, blocker string) fault.Fault {
	if f.Verdict == fault.LockTimeout && blocker != "" {
		f.Message += " (" + blocker + ")"
	}
	return f
}
