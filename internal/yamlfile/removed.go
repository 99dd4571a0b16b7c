package yamlfile

import "strings"

// removedKeys returns the fix for each removed key. The keys of a definition begin with
// "*.". A removed value of a key is written as key=value.
func removedKeys() map[string]string {
	return map[string]string{
		"*.on_reuse":                           "children of a key that was inserted again are kept; delete them with SQL if necessary",
		"loose_foreign_keys.audit":             "remove it; the history of runs counts rows by table",
		"loose_foreign_keys.audit_keep":        "remove it",
		"loose_foreign_keys.confirm_grace":     "use loose_foreign_keys.confirm_after",
		"loose_foreign_keys.confirm_within":    "use loose_foreign_keys.confirm_after",
		"loose_foreign_keys.lock_timeout":      "use jobs.lock_timeout",
		"loose_foreign_keys.statement_timeout": "use jobs.statement_timeout",
		"loose_foreign_keys.replica_lag":       "use jobs.replica_lag",
		"loose_foreign_keys.replica_lag_bytes": "use jobs.replica_lag_bytes",
		"loose_foreign_keys.undo.exclude":      "use loose_foreign_keys.undo.exclude_columns",
		"loose_foreign_keys.truncate=capture":  "use reject, and DELETE instead of TRUNCATE",
		"adjourned_groups.connections":         "remove it; a run deletes the projects of a group one after the other",
		"external_diffs.limit_per_tick":        "raise external_diffs.limit",
		"external_diffs.order":                 "remove it; diffs are moved in the order of their ids",
		"external_diffs.other_bucket":          "copy the objects with a tool of the store and set external_diff_store of the rows",
		"external_diffs.sweep":                 "remove it and run `sexton diffs verify --remove`",
		"jobs.schema":                          "remove it; the schema is always sexton",
	}
}

// removedFix returns the fix for a removed key or a key below it, and "" for other keys.
func removedFix(path string) string {
	if _, key, inList := strings.Cut(path, "]."); inList {
		path = "*." + key
	}
	for {
		if fix := removedKeys()[path]; fix != "" {
			return fix
		}
		end := strings.LastIndex(path, ".")
		if end < 0 {
			return ""
		}
		path = path[:end]
	}
}
