import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire'

/**
 * Encoding and decoding of etcd's KV messages (rpc.proto, kv.proto). Every Taproot request waits for these, and a generic protobuf library takes several times
 * as long as the call itself. Only the fields that the store uses are encoded and decoded. 64-bit numbers are texts.
 */

/** The numbers in etcd's Compare message for the result and the target of a comparison (rpc.proto). */
const compareResults = { equal: 0, greater: 1, less: 2 } as const
const compareTargets = { create: 1, mod: 2 } as const

/** The fields of an etcd RangeRequest that the store uses. */
export interface EtcdRangeRequest {
  readonly key: Buffer
  readonly range_end?: Buffer
  readonly limit?: number
  readonly revision?: number
  readonly keys_only?: boolean
}
/** The fields of an etcd Compare message that the store uses. */
export interface EtcdCompare {
  readonly key: Buffer
  readonly range_end?: Buffer
  readonly target: keyof typeof compareTargets
  readonly result: keyof typeof compareResults
  readonly create_revision?: number
  readonly mod_revision?: number
}
/** One operation of an etcd transaction. */
export interface Operation {
  readonly request_range?: EtcdRangeRequest
  readonly request_put?: { readonly key: Buffer; readonly value: Buffer; readonly lease?: string }
  readonly request_delete_range?: { readonly key: Buffer }
}
/** An etcd transaction: comparisons, and the operations to run if they hold. */
export interface TransactionRequest {
  readonly compare?: readonly EtcdCompare[]
  readonly success?: readonly Operation[]
  /** The operations to run if a comparison does not hold. */
  readonly failure?: readonly Operation[]
}

/** The fields of an etcd ResponseHeader that the store uses. */
export interface ResponseHeader {
  cluster_id: string
  revision: string
  raft_term: string
}
/** The fields of an etcd KeyValue that the store uses. */
export interface KeyValue {
  key: Buffer
  value: Buffer
  mod_revision: string
}
/** The fields of an etcd RangeResponse that the store uses. */
export interface RangeResponse {
  readonly header: ResponseHeader
  readonly kvs: readonly KeyValue[]
  readonly more: boolean
}
/** The fields of an etcd TxnResponse that the store uses. Of its operations' results it contains only those of ranges. */
export interface TransactionResponse {
  readonly header: ResponseHeader
  readonly succeeded: boolean
  readonly responses: readonly { readonly response_range?: RangeResponse }[]
}

type Numeric = string | number | undefined

/** Writes a protobuf field of bytes, unless the value is empty. */
export function writeBytes(writer: BinaryWriter, field: number, value: Uint8Array | undefined): void {
  if (value !== undefined && value.length > 0) writer.tag(field, WireType.LengthDelimited).bytes(value)
}

/** Writes a protobuf field with a 64-bit integer, unless the value is 0. */
export function writeInt64(writer: BinaryWriter, field: number, value: Numeric): void {
  if (value !== undefined && Number(value) !== 0) writer.tag(field, WireType.Varint).int64(value)
}

/** Writes a protobuf field that holds a message. */
export function writeNested(writer: BinaryWriter, field: number, write: (writer: BinaryWriter) => void): void {
  writer.tag(field, WireType.LengthDelimited).fork()
  write(writer)
  writer.join()
}

function writeRange(writer: BinaryWriter, { key, range_end, limit, revision, keys_only }: EtcdRangeRequest): void {
  writeBytes(writer, 1, key)
  writeBytes(writer, 2, range_end)
  writeInt64(writer, 3, limit)
  writeInt64(writer, 4, revision)
  if (keys_only === true) writer.tag(8, WireType.Varint).bool(true)
}

function writeCompare(writer: BinaryWriter, compare: EtcdCompare): void {
  const result = compareResults[compare.result]
  if (result !== 0) writer.tag(1, WireType.Varint).int32(result)
  writer.tag(2, WireType.Varint).int32(compareTargets[compare.target])
  writeBytes(writer, 3, compare.key)
  // Members of a oneof are written even if they are 0.
  if (compare.create_revision !== undefined) writer.tag(5, WireType.Varint).int64(compare.create_revision)
  if (compare.mod_revision !== undefined) writer.tag(6, WireType.Varint).int64(compare.mod_revision)
  writeBytes(writer, 64, compare.range_end)
}

function writeOperation(writer: BinaryWriter, { request_range, request_put, request_delete_range }: Operation): void {
  if (request_range !== undefined) writeNested(writer, 1, (inner) => writeRange(inner, request_range))
  if (request_put !== undefined) {
    writeNested(writer, 2, (inner) => {
      writeBytes(inner, 1, request_put.key)
      writeBytes(inner, 2, request_put.value)
      writeInt64(inner, 3, request_put.lease)
    })
  }
  if (request_delete_range !== undefined) {
    writeNested(writer, 3, (inner) => writeBytes(inner, 1, request_delete_range.key))
  }
}

/** Returns the bytes of a RangeRequest. */
export function encodeRange(request: EtcdRangeRequest): Uint8Array {
  const writer = new BinaryWriter()
  writeRange(writer, request)
  return writer.finish()
}

/** Returns the bytes of a TxnRequest. */
export function encodeTransaction({ compare = [], success = [], failure = [] }: TransactionRequest): Uint8Array {
  const writer = new BinaryWriter()
  for (const one of compare) writeNested(writer, 1, (inner) => writeCompare(inner, one))
  for (const one of success) writeNested(writer, 2, (inner) => writeOperation(inner, one))
  for (const one of failure) writeNested(writer, 3, (inner) => writeOperation(inner, one))
  return writer.finish()
}

/** Calls `read` with the number of each field, up to the end of the message at `end`. `read` consumes the field's value, or returns false to skip it. */
export function eachField(reader: BinaryReader, end: number, read: (field: number) => boolean): void {
  while (reader.pos < end) {
    const [field, type] = reader.tag()
    if (!read(field)) reader.skip(type, field)
  }
}

/** Reads an embedded message: its length, and then its fields with `read`. */
export function nested<T>(reader: BinaryReader, read: (reader: BinaryReader, end: number) => T): T {
  const length = reader.uint32()
  return read(reader, reader.pos + length)
}

/** The header of a response that contains no header. */
export const noHeader: ResponseHeader = { cluster_id: '0', revision: '0', raft_term: '0' }

/** Reads a ResponseHeader. */
export function readHeader(reader: BinaryReader, end: number): ResponseHeader {
  const header = { ...noHeader }
  eachField(reader, end, (field) => {
    if (field === 1) header.cluster_id = String(reader.uint64())
    else if (field === 3) header.revision = String(reader.int64())
    else if (field === 4) header.raft_term = String(reader.uint64())
    else return false
    return true
  })
  return header
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

const noBytes = Buffer.alloc(0)

/** Returns a KeyValue with all fields empty. */
export function emptyKeyValue(): KeyValue {
  return { key: noBytes, mod_revision: '0', value: noBytes }
}

/** Reads a KeyValue. */
export function readKeyValue(reader: BinaryReader, end: number): KeyValue {
  const kv = emptyKeyValue()
  eachField(reader, end, (field) => {
    if (field === 1) kv.key = bufferOf(reader.bytes())
    else if (field === 3) kv.mod_revision = String(reader.int64())
    else if (field === 5) kv.value = bufferOf(reader.bytes())
    else return false
    return true
  })
  return kv
}

function readRange(reader: BinaryReader, end: number): RangeResponse {
  const kvs: KeyValue[] = []
  const response = { header: noHeader, kvs, more: false }
  eachField(reader, end, (field) => {
    if (field === 1) response.header = nested(reader, readHeader)
    else if (field === 2) kvs.push(nested(reader, readKeyValue))
    else if (field === 3) response.more = reader.bool()
    else return false
    return true
  })
  return response
}

function readOperation(reader: BinaryReader, end: number): { response_range?: RangeResponse } {
  const response: { response_range?: RangeResponse } = {}
  eachField(reader, end, (field) => {
    if (field !== 1) return false
    response.response_range = nested(reader, readRange)
    return true
  })
  return response
}

/** Decodes a RangeResponse. Its keys and values are views of `bytes`, not copies. */
export function decodeRange(bytes: Uint8Array): RangeResponse {
  return readRange(new BinaryReader(bytes), bytes.length)
}

/** Decodes a TxnResponse. */
export function decodeTransaction(bytes: Uint8Array): TransactionResponse {
  const reader = new BinaryReader(bytes)
  const responses: { response_range?: RangeResponse }[] = []
  const response = { header: noHeader, succeeded: false, responses }
  eachField(reader, bytes.length, (field) => {
    if (field === 1) response.header = nested(reader, readHeader)
    else if (field === 2) response.succeeded = reader.bool()
    else if (field === 3) responses.push(nested(reader, readOperation))
    else return false
    return true
  })
  return response
}
