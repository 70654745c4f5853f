module carillon.dev/hack/cluster/toolbox

go 1.26
