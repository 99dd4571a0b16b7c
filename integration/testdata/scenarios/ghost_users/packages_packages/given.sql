INSERT INTO packages_packages (id, creator_id, project_id, name, package_type) VALUES
    (1, 1, 100, 'package', 2),
    (2, 2, 100, 'package', 2);
