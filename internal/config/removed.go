package config

import (
	"strings"

	"sexton/internal/problem"
)

// removedKeys returns, for each key that was removed, what to do instead.
func removedKeys() map[string]string {
	return map[string]string{
		"loose_foreign_keys.audit":          "remove it; the history of runs counts rows by table",
		"loose_foreign_keys.audit_keep":     "remove it",
		"loose_foreign_keys.confirm_grace":  "use loose_foreign_keys.confirm_after",
		"loose_foreign_keys.confirm_within": "use loose_foreign_keys.confirm_after",
		"external_diffs.limit_per_tick":     "raise external_diffs.limit",
		"external_diffs.order":              "remove it; diffs are moved in the order of their ids",
		"external_diffs.other_bucket":       "copy the objects with a tool of the store and set external_diff_store of the rows",
		"external_diffs.sweep":              "remove it and run `sexton diffs verify --remove`",
		"jobs.schema":                       "remove it; the schema is always sexton",
	}
}

// explainRemoved replaces the messages about removed keys, which are unknown keys otherwise.
func explainRemoved(problems problem.List) {
	for i, p := range problems {
		for key, fix := range removedKeys() {
			variable := variableName(strings.Split(key, "."))
			if p.Key == key || p.Key == variable || strings.HasPrefix(p.Key, variable+"__") {
				problems[i].Message, problems[i].Fix = "was removed", fix
			}
		}
	}
}
