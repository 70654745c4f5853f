package subjectindex

// bloom is a split block Bloom filter: the hash of a key selects one block of 32 bytes and one bit
// in each of its eight words. A lookup reads one block, so a filter needn't be in memory as a
// whole. The construction is that of Parquet, with its multipliers.
//
// A binary fuse filter takes a fifth less for the same rate. It needs three reads that are far
// apart, and all keys in memory while it is made.
type bloom struct{ bits []byte }

const bloomBlock = 32

var multipliers = [8]uint32{0x47b6137b, 0x44974d91, 0x8824ad5b, 0xa2b7289d, 0x705495c7, 0x2df1424b, 0x9efc4947, 0x5c6bfb31}

// newBloom returns a filter for up to n keys. fold shrinks it if there are fewer.
func newBloom(n uint64) *bloom {
	blocks := uint64(1)
	for blocks*bloomBlock*8 < n*filterBits {
		blocks *= 2
	}
	// Some steps between the powers of two, so that at most an eighth is too much. It stays a
	// multiple of a power of two, which fold needs.
	for step := blocks / 16; step > 0 && (blocks-step)*bloomBlock*8 >= n*filterBits; {
		blocks -= step
	}
	return &bloom{make([]byte, blocks*bloomBlock)}
}

func (f *bloom) blocks() uint64 { return uint64(len(f.bits) / bloomBlock) }

// bloomPlace returns the block of a hash in a filter of so many blocks.
func bloomPlace(h, blocks uint64) uint64 { return (h >> 32) * blocks >> 32 }

func (f *bloom) add(h uint64) {
	block := f.bits[bloomPlace(h, f.blocks())*bloomBlock:][:bloomBlock]
	for i, m := range multipliers {
		word := block[4*i : 4*i+4]
		le.PutUint32(word, le.Uint32(word)|1<<(uint32(h)*m>>27))
	}
}

// bloomHas reports whether a block may have the hash.
func bloomHas(block []byte, h uint64) bool {
	for i, m := range multipliers {
		if le.Uint32(block[4*i:])&(1<<(uint32(h)*m>>27)) == 0 {
			return false
		}
	}
	return true
}

// fold halves the filter while it has twice the room that n keys need. The place of a hash in half
// as many blocks is half of its place.
func (f *bloom) fold(n uint64) {
	for f.blocks()%2 == 0 && f.blocks()/2*bloomBlock*8 >= n*filterBits {
		half := uint64(len(f.bits) / 2)
		for i := uint64(0); i < half; i += bloomBlock {
			for k := range uint64(bloomBlock) {
				f.bits[i+k] = f.bits[2*i+k] | f.bits[2*i+bloomBlock+k]
			}
		}
		f.bits = f.bits[:half]
	}
}
