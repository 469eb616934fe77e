// Browsers refuse workers to pages opened from disk. There the search runs in a hidden frame instead: the same messages,
// to and fro, and `importScripts` that loads one script after the other.
if (location.protocol === "file:") {
  window.Worker = class FrameWorker extends EventTarget {
    constructor(address) {
      super()
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = data => setTimeout(() => {
        const message = new MessageEvent("message", { data: structuredClone(data) })
        this.dispatchEvent(message)
        this.onmessage?.(message)
      })
      const load = source => new Promise((loaded, failed) => {
        const script = inside.document.createElement("script")
        Object.assign(script, { src: source, onload: loaded, onerror: failed })
        inside.document.body.append(script)
      })
      inside.importScripts = async (...sources) => {
        for (const source of sources) await load(new URL(source, address))
      }
      this.ready = load(address)
    }
    postMessage(data) {
      this.ready.then(() => this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data: structuredClone(data) })))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
