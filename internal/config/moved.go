package config

import (
	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

// keysOfAllKinds are keys of jobs that were under loose_foreign_keys once, where they are accepted still.
func keysOfAllKinds() []string {
	return []string{"lock_timeout", "statement_timeout", "replica_lag", "replica_lag_bytes"}
}

// movedKeys moves values that the file has under old keys, and warns of them.
func movedKeys(doc *yamlfile.Document) (warnings problem.List) {
	for _, key := range keysOfAllKinds() {
		if place, moved := doc.Move(key, "loose_foreign_keys", "jobs"); moved {
			warnings.Add(movedKey(place, "loose_foreign_keys."+key, "jobs."+key))
		}
	}
	return warnings
}

func movedKey(place yamlfile.Place, from, to string) problem.Problem {
	p := place.Problem(from, "holds for all kinds of jobs, so it is "+to+" now", "rename it; where both are given, "+to+" counts")
	p.Severity = problem.Warning
	return p
}
