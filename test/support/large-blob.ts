const mebibytes = Number(process.env['TAPROOT_BLOB_MIB'] ?? 256)
if (!Number.isInteger(mebibytes) || mebibytes < 1) throw new RangeError(`TAPROOT_BLOB_MIB: expected a number of MiB, got "${process.env['TAPROOT_BLOB_MIB']}"`)

/** Bytes of a large blob: 256 MiB, or TAPROOT_BLOB_MIB; `npm run soak:blob` uses 2048. */
export const largeBlobBytes = mebibytes * 1024 * 1024
