import { BinaryReader, BinaryWriter, WireType } from '@bufbuild/protobuf/wire'
import type { ICompare, IKeyValue, IRangeRequest, IResponseHeader } from 'etcd3'

/**
 * Encoding and decoding of the etcd KV messages for which every Taproot request waits (etcd's rpc.proto and kv.proto). The driver's reflective codec costs
 * several times the call itself. Only fields that the adapter uses are written and read.
 */

/** etcd's numbers of results and targets (rpc.proto, Compare). */
const compareResults: Readonly<Record<string, number>> = { Equal: 0, Greater: 1, Less: 2, NotEqual: 3 }
const compareTargets: Readonly<Record<string, number>> = { Version: 0, Create: 1, Mod: 2, Value: 3, Lease: 4 }

/** The fields of a range request that the adapter uses. */
export type EtcdRangeRequest = Pick<IRangeRequest, 'key' | 'range_end' | 'limit' | 'revision' | 'keys_only'>
/** The fields of a comparison that the adapter uses. */
export type EtcdCompare = Pick<ICompare, 'key' | 'result' | 'target' | 'create_revision' | 'mod_revision'> & { readonly range_end?: Buffer }
/** An operation of a transaction. */
export interface Operation {
  readonly request_range?: EtcdRangeRequest
  readonly request_put?: { readonly key: Buffer; readonly value: Buffer; readonly lease?: string }
  readonly request_delete_range?: { readonly key: Buffer }
}
/** A transaction of the adapter. */
export interface TransactionRequest {
  readonly compare?: readonly EtcdCompare[]
  readonly success?: readonly Operation[]
  /** The operations to run instead if a comparison fails. */
  readonly failure?: readonly Operation[]
}

/** The fields that the adapter reads of a response header. */
export type ResponseHeader = Pick<IResponseHeader, 'cluster_id' | 'revision' | 'raft_term'>
/** The fields that the adapter reads of a key. */
export type KeyValue = Pick<IKeyValue, 'key' | 'value' | 'mod_revision'>
/** The fields that the adapter reads of a range response. */
export interface RangeResponse {
  readonly header: ResponseHeader
  readonly kvs: readonly KeyValue[]
  readonly more: boolean
}
/** The fields that the adapter reads of a transaction response; of its operations only the ranges. */
export interface TransactionResponse {
  readonly header: ResponseHeader
  readonly succeeded: boolean
  readonly responses: readonly { readonly response_range?: RangeResponse }[]
}

type Numeric = string | number | undefined

function writeBytes(writer: BinaryWriter, field: number, value: Uint8Array | undefined): void {
  if (value !== undefined && value.length > 0) writer.tag(field, WireType.LengthDelimited).bytes(value)
}

function writeInt64(writer: BinaryWriter, field: number, value: Numeric): void {
  if (value !== undefined && Number(value) !== 0) writer.tag(field, WireType.Varint).int64(value)
}

function writeNested(writer: BinaryWriter, field: number, write: (writer: BinaryWriter) => void): void {
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

function numberOf(table: Readonly<Record<string, number>>, value: string | number | undefined): number {
  const number = typeof value === 'number' ? value : table[value ?? '']
  if (number === undefined) throw new TypeError(`etcd has no ${value}`)
  return number
}

function writeCompare(writer: BinaryWriter, compare: EtcdCompare): void {
  const result = numberOf(compareResults, compare.result)
  const target = numberOf(compareTargets, compare.target)
  if (result !== 0) writer.tag(1, WireType.Varint).int32(result)
  if (target !== 0) writer.tag(2, WireType.Varint).int32(target)
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

/** Calls `read` for each field of the message that ends at `end`; it returns false for fields to skip. */
function eachField(reader: BinaryReader, end: number, read: (field: number) => boolean): void {
  while (reader.pos < end) {
    const [field, type] = reader.tag()
    if (!read(field)) reader.skip(type, field)
  }
}

/** Reads a length-prefixed message. */
function nested<T>(reader: BinaryReader, read: (reader: BinaryReader, end: number) => T): T {
  const length = reader.uint32()
  return read(reader, reader.pos + length)
}

const noHeader: ResponseHeader = { cluster_id: '0', revision: '0', raft_term: '0' }

function readHeader(reader: BinaryReader, end: number): ResponseHeader {
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

function readKeyValue(reader: BinaryReader, end: number): KeyValue {
  const kv: KeyValue = { key: noBytes, mod_revision: '0', value: noBytes }
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

/** Decodes a RangeResponse. Its keys and values refer to `bytes`: no copies. */
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
