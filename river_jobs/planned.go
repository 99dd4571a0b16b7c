package riverjobs

import "sexton/internal/config"

// CountDueDiffsSQL is a statement, to be rendered for the configured schemas: how many diffs a run that begins now would hand on, and
// whether there are more.
func CountDueDiffsSQL(c *config.Config) (string, error) { return diffRule(c).CountDueSQL(bySize(c)) }
