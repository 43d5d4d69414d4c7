/** Text that comes as if it were typed, and a view that follows it: one change of the document a frame. */

const LAG_FRAMES = 6;
const NEAR_PX = 48;
const EASE = 0.35;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

/** Shows pushed text at the end of an element, a part of what waits in each frame. */
export class Typewriter {
  /** `eachFrame` is called after each change. */
  constructor(element, eachFrame = () => {}) {
    this.node = element.appendChild(document.createTextNode(""));
    this.eachFrame = eachFrame;
    this.waiting = "";
    this.frame = 0;
    this.drained = null;
  }

  /** Text that is to be shown. */
  push(text) {
    this.waiting += text;
    this.frame ||= requestAnimationFrame(() => this.draw());
  }

  draw() {
    this.frame = 0;
    this.take(calm.matches ? this.waiting.length : Math.ceil(this.waiting.length / LAG_FRAMES));
    if (this.waiting) this.frame = requestAnimationFrame(() => this.draw());
    else this.drained?.();
  }

  take(count) {
    // A character outside the first plane is two units, which stay together.
    const last = this.waiting.charCodeAt(count - 1);
    const whole = last >= 0xd800 && last < 0xdc00 ? count + 1 : count;
    this.node.appendData(this.waiting.slice(0, whole));
    this.waiting = this.waiting.slice(whole);
    this.eachFrame();
  }

  /** Resolves when all text is shown; at once where nobody looks, because then no frame comes. */
  async finish() {
    if (document.hidden && this.waiting) this.take(this.waiting.length);
    if (this.waiting) await new Promise(resolve => { this.drained = resolve; });
  }
}

/** Keeps the end of a scrolling element in view, until the reader scrolls up; back at the end it holds on again. */
export class Follower {
  /** `told` is called with whether it follows. */
  constructor(scroller, told = () => {}) {
    this.scroller = scroller;
    this.told = told;
    this.follows = true;
    this.top = 0;
    this.frame = 0;
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  scrolled() {
    const { scrollTop, scrollHeight, clientHeight } = this.scroller;
    if (scrollTop < this.top - 1) this.hold(false);
    if (scrollHeight - clientHeight - scrollTop < NEAR_PX && scrollTop > this.top - 1) this.hold(true);
    this.top = scrollTop;
  }

  hold(follows) {
    if (follows === this.follows) return;
    this.follows = follows;
    this.told(follows);
  }

  /** Something was added: move to it, softly. */
  grown() {
    this.frame ||= requestAnimationFrame(() => this.step());
  }

  step() {
    this.frame = 0;
    const { scroller } = this;
    const left = scroller.scrollHeight - scroller.clientHeight - scroller.scrollTop;
    if (!this.follows || left < 1) return;
    scroller.scrollTop += calm.matches ? left : Math.max(1, left * EASE);
    this.top = scroller.scrollTop;
    this.grown();
  }

  /** Go to the end and follow again. */
  jump() {
    this.hold(true);
    this.grown();
  }
}
