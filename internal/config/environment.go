package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"sexton/internal/problem"
	"sexton/internal/yamlfile"
)

const (
	prefix         = "SEXTON_"
	databasePrefix = prefix + "DATABASES__"
)

// override replaces values of the file by the values of SEXTON_ variables and of
// --database-url.
func (l *loader) override(root *yamlfile.Node) {
	names := databaseNames(root)
	if len(names) == 0 {
		names = l.addDatabases(root)
	}
	for _, variable := range slices.Sorted(maps.Keys(l.environ)) {
		if path, ok := l.path(variable, names); ok {
			root.Set(variable, l.environ[variable], path...)
		}
	}
	if l.options.DatabaseURL != "" && len(names) > 0 {
		root.Set("--database-url", l.options.DatabaseURL, "databases", names[0], "url")
		root.Set("--database-url", "", "databases", names[0], "listen_url")
	}
}

// databaseNames returns the names of the databases in the file.
func databaseNames(root *yamlfile.Node) (names []string) {
	for _, section := range root.Items {
		for _, database := range section.Items {
			if section.Key == "databases" {
				names = append(names, database.Key)
			}
		}
	}
	return names
}

// addDatabases adds the databases that variables or --database-url define. It returns
// their names with main first.
func (l *loader) addDatabases(root *yamlfile.Node) []string {
	var names []string
	for variable := range l.environ {
		name, ok := strings.CutPrefix(variable, databasePrefix)
		name, url := strings.CutSuffix(name, "__URL")
		if ok && url && databaseName.MatchString(strings.ToLower(name)) && name == strings.ToUpper(name) {
			names = append(names, strings.ToLower(name))
		}
	}
	slices.Sort(names)
	if i := slices.Index(names, "main"); i > 0 {
		names = slices.Insert(slices.Delete(names, i, i+1), 0, "main")
	}
	for _, name := range names {
		root.Set(variableName("databases", name, "url"), "", "databases", name, "url")
	}
	if url := l.environ["DATABASE_URL"]; len(names) == 0 && (url != "" || l.options.DatabaseURL != "") {
		names = []string{"main"}
		root.Set("DATABASE_URL", url, "databases", "main", "url")
	}
	return names
}

// path returns the path of the key that a variable sets. It returns false for variables
// that are not part of the configuration, such as SEXTON_CONFIG.
func (l *loader) path(variable string, databases []string) ([]string, bool) {
	name, ok := strings.CutPrefix(variable, prefix)
	if !ok {
		return nil, false
	}
	path := strings.Split(strings.ToLower(name), "__")
	if path[0] == "databases" && len(path) > 1 {
		// The name of a database may contain two underscores, so the longest matching
		// name is used.
		longest := ""
		for _, database := range databases {
			if strings.HasPrefix(variable, variableName("databases", database, "")) && len(database) > len(longest) {
				longest = database
			}
		}
		if longest != "" {
			key := strings.TrimPrefix(variable, variableName("databases", longest, ""))
			return append([]string{"databases", longest}, strings.Split(strings.ToLower(key), "__")...), true
		}
		fix := "the databases are " + strings.Join(databases, ", ")
		if len(databases) == 0 {
			fix = "set its URL as well, as in SEXTON_DATABASES__MAIN__URL"
		}
		l.problems.Add(problem.Problem{
			Key: variable, Message: "the variable names a database that is not configured", Fix: fix,
		})
		return nil, false
	}
	section := func(f reflect.StructField) bool {
		key := strings.ToUpper(f.Tag.Get("yaml"))
		return key != "" && (name == key || strings.HasPrefix(name, key+"_"))
	}
	if len(path) == 1 && !slices.ContainsFunc(reflect.VisibleFields(reflect.TypeFor[Config]()), section) {
		return nil, false
	}
	if len(path) == 1 || name != strings.ToUpper(name) {
		l.problems.Add(problem.Problem{
			Key: variable, Message: "the variable is not a configuration key",
			Fix: "write it in capitals, with two underscores between levels, as in SEXTON_LOG__LEVEL",
		})
		return nil, false
	}
	return path, true
}

func variableName(path ...string) string {
	return prefix + strings.ToUpper(strings.Join(path, "__"))
}

// URLVariable returns the name of the variable that sets the URL of a database. If the
// URL is in the file, it returns the variable that would set it.
func (c *Config) URLVariable(name string) string {
	path := []string{"databases", name, "url"}
	variable := variableName(path...)
	if source := c.positions[strings.Join(path, ".")].Source; name == "main" && source != variable {
		return "DATABASE_URL"
	}
	return variable
}
