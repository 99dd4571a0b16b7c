package database

import (
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"
)

// ownPath is the search_path of direct sessions: a bare name in a statement of ours, of River's or of goose's finds nothing that
// another role may have created.
const ownPath = "pg_catalog, pg_temp"

const pathKey = "search_path"

var pathOption = regexp.MustCompile(`(?:^|\s)(?:-c\s*|--)search_path=((?:\\.|[^\s\\])+)`)

// pooled finds out from its settings that a URL leads through a transaction pooler, which refuses a start-up parameter. Without
// a direct URL the query mode says so: prepared statements, the default, need a session of their own.
func pooled(settings *pgx.ConnConfig, direct string) bool {
	return direct != "" || settings.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement
}

// pin sets the path of direct sessions, and returns the path that the URL asks for.
func pin(settings *pgx.ConnConfig, isPooled bool) (asked string) {
	if option := pathOption.FindStringSubmatch(settings.RuntimeParams["options"]); option != nil {
		asked = regexp.MustCompile(`\\(.)`).ReplaceAllString(option[1], "$1")
	}
	if path := settings.RuntimeParams[pathKey]; path != "" {
		asked = path
	}
	if isPooled {
		delete(settings.RuntimeParams, pathKey)
	} else {
		settings.RuntimeParams[pathKey] = ownPath
	}
	return strings.TrimSpace(asked)
}
