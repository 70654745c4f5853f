package attribute

// Bounds of attributes, each with the reason for its value.
const (
	// MaxBytes is the size of the attributes of a subject as JSON. They say what a subject is about;
	// content belongs into messages.
	MaxBytes = 4 << 10
	// maxName is the size of a name in bytes. It stands in each subject's value and in queries.
	maxName = 64
	// maxSubject is the size of a subject with attributes. It is a key of etcd, and stands in
	// answers.
	maxSubject = 1 << 10
	// MaxChanges is how many changes one request may have: as many as a transaction of etcd takes.
	MaxChanges = 100
	// MaxSubjects is how many subjects of a cluster may have attributes. Every broker holds them in
	// memory, with some 300 bytes beside the text of each.
	MaxSubjects = 100_000
	// MaxTotal bounds the subjects and values in etcd, in bytes: an eighth of its quota. As much
	// again is its history, since coordinators keep less of it the larger it is.
	MaxTotal = 64 << 20
	// maxTold is how many are told of changes. They are parts of a broker, and not clients.
	maxTold = 16
	// chunk is how many subjects one piece of the order of subjects has: inserting one moves as many
	// at most.
	chunk = 512
)
