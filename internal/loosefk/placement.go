package loosefk

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"sexton/internal/definitions"
	"sexton/internal/pgcatalog"
	"sexton/internal/problem"
	"sexton/internal/render"
)

// Site describes one configured database to Resolve.
type Site struct {
	Name string
	// Schema is the schema of tables that are named without one.
	Schema string
	// Tables are shell patterns for the names of the tables in this database. Other
	// databases may have tables with the same names.
	Tables []string
	// DB is nil if the database cannot be reached.
	DB pgcatalog.Beginner
}

// SiteError is the error of a query in one database.
type SiteError struct {
	Database string
	Err      error
}

func (e *SiteError) Error() string {
	return fmt.Sprintf("check definitions against database %s: %v", e.Database, e.Err)
}

func (e *SiteError) Unwrap() error { return e.Err }

// site is a database with the tables that the definitions name. catalog is nil if the
// database cannot be reached.
type site struct {
	Site

	catalog *catalog
}

// Claims reports whether one of the database's patterns matches the table.
func (s Site) Claims(name definitions.Name) bool {
	return slices.ContainsFunc(s.Tables, func(pattern string) bool {
		subject := name.Table
		if strings.Contains(pattern, ".") {
			if name.Schema == "" {
				name.Schema = s.Schema
			}
			subject = name.Schema + "." + name.Table
		}
		matches, err := path.Match(pattern, subject)
		return err == nil && matches
	})
}

func (s *site) has(name definitions.Name) bool {
	return s.catalog != nil && s.catalog.lookup(name) != nil
}

// home returns the database that has a table: the database whose patterns match the name,
// else the database without patterns in which the table exists, else a database without
// patterns that cannot be reached.
func (r *resolver) home(name definitions.Name) (*site, *problem.Problem) {
	if len(r.sites) == 1 {
		return r.sites[0], nil
	}
	const key = "tables of the databases"
	var claim, having, unknown, open []*site
	for _, s := range r.sites {
		switch {
		case s.Claims(name):
			claim = append(claim, s)
		case len(s.Tables) > 0:
		case s.has(name):
			having = append(having, s)
		case s.catalog == nil:
			unknown = append(unknown, s)
		}
		if len(s.Tables) == 0 {
			open = append(open, s)
		}
	}
	for _, found := range [][]*site{claim, having} {
		switch {
		case len(found) == 1:
			return found[0], nil
		case len(found) > 1:
			return nil, &problem.Problem{
				Message: fmt.Sprintf("table %s is in more than one database: %s", name, sitesOf(found)),
				Fix:     "set " + key + ", such as tables: [" + name.Table + "]",
			}
		}
	}
	if len(unknown) > 0 {
		return unknown[0], nil
	}
	if len(open) > 0 && !slices.ContainsFunc(r.sites, func(s *site) bool { return s.has(name) }) {
		// No database has the table. The caller reports that it does not exist in this
		// one.
		return open[0], nil
	}
	for _, s := range r.sites {
		if s.has(name) {
			return nil, &problem.Problem{
				Message: fmt.Sprintf("table %s is in database %s, but no pattern in its tables matches", name, s.Name),
				Fix:     fmt.Sprintf("add it to databases.%s.tables", s.Name),
			}
		}
	}
	return nil, &problem.Problem{
		Message: fmt.Sprintf("no pattern in tables of the databases matches table %s", name),
		Fix:     "add it to databases.<name>.tables",
	}
}

func sitesOf(sites []*site) string {
	return strings.Join(render.Each(sites, func(s *site) string { return s.Name }), ", ")
}
