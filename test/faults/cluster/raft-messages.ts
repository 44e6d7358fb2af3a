const frameHeadBytes = 8
/** raftpb.Message begins with its type: field 1, a varint. A member that is no leader sends proposals (2) on to the leader. */
const proposalStart = Buffer.from([0x08, 0x02])

/** True for a message of etcd's peers that forwards a proposal to the leader. */
export function isProposal(message: Buffer): boolean {
  // Behind the HTTP chunk's length and the frame's.
  const at = message.indexOf('\r\n') + 2 + frameHeadBytes
  return message.subarray(at, at + proposalStart.length).equals(proposalStart)
}

/** True where a request asks a member for the messages that it has for the one who asks. */
export function asksForMessages(request: Buffer): boolean {
  return request.toString('latin1', 0, 64).startsWith('GET /raft/stream/message/')
}

/**
 * Cuts the answer to such a request into its head and its messages, each as one HTTP chunk. So messages can be held back one by one, and others pass them.
 * The body is chunked, and consists of messages behind their length in 8 bytes (etcd's rafthttp).
 */
export class MessageSplitter {
  #raw = Buffer.alloc(0)
  #body = Buffer.alloc(0)
  #isInBody = false

  /** The units that are complete with these bytes. */
  split(bytes: Buffer): Buffer[] {
    this.#raw = Buffer.concat([this.#raw, bytes])
    const units: Buffer[] = []
    if (!this.#isInBody) {
      const end = this.#raw.indexOf('\r\n\r\n')
      if (end < 0) return units
      units.push(this.#raw.subarray(0, end + 4))
      this.#raw = this.#raw.subarray(end + 4)
      this.#isInBody = true
    }
    while (this.#takeChunk());
    for (let message = this.#takeMessage(); message !== undefined; message = this.#takeMessage()) units.push(asChunk(message))
    return units
  }

  /** Moves one complete chunk's content to the body; false where none is there. */
  #takeChunk(): boolean {
    const lineEnd = this.#raw.indexOf('\r\n')
    if (lineEnd < 0) return false
    const length = Number.parseInt(this.#raw.toString('latin1', 0, lineEnd), 16)
    const end = lineEnd + 2 + length
    if (this.#raw.length < end + 2) return false
    this.#body = Buffer.concat([this.#body, this.#raw.subarray(lineEnd + 2, end)])
    this.#raw = this.#raw.subarray(end + 2)
    return true
  }

  #takeMessage(): Buffer | undefined {
    if (this.#body.length < frameHeadBytes) return undefined
    const end = frameHeadBytes + Number(this.#body.readBigUInt64BE())
    if (this.#body.length < end) return undefined
    const message = this.#body.subarray(0, end)
    this.#body = this.#body.subarray(end)
    return message
  }
}

function asChunk(content: Buffer): Buffer {
  return Buffer.concat([Buffer.from(`${content.length.toString(16)}\r\n`), content, Buffer.from('\r\n')])
}
