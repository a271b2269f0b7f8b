(** The rules that make and take summands are sound. *)
From mathcomp Require Import all_ssreflect all_fingroup zify.
From Redistrib Require Import Spec.Sequences Spec.Weak Spec.Types Spec.Collectives Spec.LowLevel Spec.Exchange Spec.Partial.
From Redistrib Require Import Thm.Arith Thm.TypeMeaning Thm.Typing Thm.Received.

Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.

Section PartialTypes.
Variables (n : nat) (sz : 'I_n -> nat) (r : nat) (g : shape r).
Hypothesis sz_prime : forall a, prime (sz a).
Local Notation dev := (dev sz).
Local Notation elem := (elem g).
Local Notation pty := (pty n r).
Local Notation has := (@has n sz r g).
Local Notation line := (@line n sz).
Implicit Types (v : pty) (xs ys : seq 'I_n) (h k : dev) (e : elem) (i : 'I_r).

Let sz_gt0 := sz_gt0 sz_prime.

Lemma lineP xs h k : reflect (forall a, a \notin xs -> k a = h a) (k \in line xs h).
Proof.
rewrite inE; apply: (iffP forallP) => H a; first by move=> na; apply/eqP; have := H a; rewrite na.
by apply/implyP => na; rewrite (H a na).
Qed.

Lemma pwfP v : pwf sz v -> [/\ wf sz (whole v), uniq (partial v) & forall a, a \in partial v -> free (whole v) a].
Proof. by case/and3P => w u /allP f. Qed.

(** Along axes that cut nothing devices have the same tile. *)
Lemma has_line v xs h k e : pwf sz v -> (forall a, a \in xs -> free (whole v) a) -> k \in line xs h -> has v k e = has v h e.
Proof.
case/pwfP => w _ _ F /lineP L; rewrite /Partial.has.
suff -> : T (whole v) k = T (whole v) h by [].
by apply/(T_eq _ _ _ w) => // a; apply: contraNeq => na; apply: F; apply: contraNT na => /L ->.
Qed.

Lemma slice_has v v' i xs h e : pwf sz v -> slice_rule sz i xs (whole v) (whole v') -> has v' h e -> has v h e.
Proof.
case/pwfP => w _ _ R; have w' := slice_wf w R.
suff G : gather_rule sz i xs (whole v') (whole v) by move: e; apply/subsetP; exact: (gather_sub sz_prime g h w' G).
case: R => c [u f E ->]; exists (axs (whole v) i); split; first by rewrite /= upd_same.
by case: (whole v) E => l A s /= ->; congr Ty; apply/ffunP => j; rewrite !ffunE; case: eqP => [->|].
Qed.

(** Two devices that have the same element have the same tile. *)
Lemma has_same (v : pty) h k e : wf sz (whole v) -> has v h e -> has v k e -> T (whole v) h = T (whole v) k.
Proof.
move=> w; rewrite /Partial.has !inE => /forallP H /forallP K; apply/ffunP => i; rewrite !ffunE.
have c0 := wf_loc i w; have := H i; have := K i; rewrite !ffunE.
move: (doff_dvd (loc (whole v) i) (axs (whole v) i) h) (doff_dvd (loc (whole v) i) (axs (whole v) i) k).
move=> /dvdnP[a ->] /dvdnP[b ->] /andP[b1 b2] /andP[a1 a2]; congr (_ * _).
move: c0 b1 b2 a1 a2; move: (loc (whole v) i) (nat_of_ord (e i)) => c m c0 b1 b2 a1 a2.
have : a * c < b.+1 * c by rewrite mulSn; lia.
have : b * c < a.+1 * c by rewrite mulSn; lia.
by rewrite !ltn_pmul2r //; lia.
Qed.

(** Of an element of a gathered tile some device along the axes had it. *)
Lemma gather_has v v' i xs h e : wf sz (whole v) -> gather_rule sz i xs (whole v) (whole v') -> has v' h e ->
  exists2 k, k \in line xs h & has v k e.
Proof.
move=> w [ys [E R]]; rewrite /Partial.has R inE => /forallP H.
have c0 := wf_loc i w; set c := loc (whole v) i in c0.
have u : uniq xs by have := wf_uniq i w; rewrite E cat_uniq => /andP[].
pose o := doff (c * span sz xs) ys h.
have /andP[lo hi] : o <= e i < o + c * span sz xs by have := H i; rewrite /T /= !ffunE eqxx.
have kx : (e i - o) %/ c < span sz xs by rewrite ltn_divLR //; move: lo hi; rewrite mulnC; lia.
have [k [K O]] := doff_surj sz_gt0 h c0 u kx.
exists k; first by apply/lineP.
rewrite inE; apply/forallP => j; rewrite ffunE; have [->|ji] := eqVneq j i.
  rewrite E doff_cat K -/c; have -> : doff (c * span sz xs) ys k = o.
    apply/doff_eq; [exact: sz_gt0|by rewrite muln_gt0 c0 span_gt0 | move=> a ay; apply: O].
    by have := wf_uniq i w; rewrite E cat_uniq => /and3P[_ /hasPn/(_ a ay)].
  have := divn_eq (e i - o) c; have := ltn_pmod (e i - o) c0.
  by move: lo; rewrite [_ * c]mulnC; move: (_ %/ _) (_ %% _) => q m; lia.
have : doff (loc (whole v) j) (axs (whole v) j) h <= e j < doff (loc (whole v) j) (axs (whole v) j) h + loc (whole v) j.
  by have := H j; rewrite /T /= !ffunE (negbTE ji).
suff -> : doff (loc (whole v) j) (axs (whole v) j) k = doff (loc (whole v) j) (axs (whole v) j) h by [].
apply/doff_eq; [exact: sz_gt0|exact: wf_loc w | move=> a aj; apply: O].
apply: contraNN ji => ax; apply/eqP; apply: (wf_disjoint w aj).
by rewrite E mem_cat ax.
Qed.

(** [k] with the coordinates of [h] along [xs]. *)
Definition mix xs h k : dev := [ffun a => if a \in xs then h a else k a].
Lemma mixE xs h k a : mix xs h k a = if a \in xs then h a else k a.
Proof. by rewrite ffunE. Qed.

Section Values.
Variables (V : Type) (zero : V) (add : Monoid.com_law zero).
Implicit Types (st : dev -> elem -> V) (x : elem -> V).

(** The sum along all partial axes is that along some of them, of those along the others. *)
Lemma reduce_parts v xs st x h e : {subset xs <= partial v} ->
  \big[add/zero]_(k in line (without xs (partial v)) h) reduced add xs st k e =
  \big[add/zero]_(k in line (partial v) h) st k e.
Proof.
move=> sub; rewrite [RHS](partition_big (mix xs h) (mem (line (without xs (partial v)) h))) => [|k /lineP L].
  apply: eq_bigr => k /lineP K; apply: eq_bigl => j; apply/lineP/andP => [J|[/lineP J /eqP M] a na].
    split; last by apply/eqP/ffunP => a; rewrite mixE; case: ifP => [ax|/negbT/J //]; rewrite K // mem_filter ax.
    apply/lineP => a na; rewrite J; last by apply: contraNN na; apply: sub.
    by apply: K; rewrite mem_filter negb_and na orbT.
  by rewrite -M mixE (negbTE na).
apply/lineP => a; rewrite mem_filter negb_and negbK mixE; case: ifP => //= _ na.
exact: L.
Qed.

(** The same sums on devices alike along the other partial axes. *)
Lemma reduce_alike v xs st h k e : pwf sz v -> {subset xs <= partial v} ->
  (forall h k e, has v h e -> has v k e -> (forall a, a \in partial v -> h a = k a) -> st h e = st k e) ->
  has v h e -> has v k e -> (forall a, a \in without xs (partial v) -> h a = k a) ->
  reduced add xs st h e = reduced add xs st k e.
Proof.
move=> w sub A hh hk E; case/pwfP: (w) => _ _ F.
have F' a : a \in xs -> free (whole v) a by move/sub/F.
rewrite /reduced (reindex_onto (fun j => mix xs j h) (fun j => mix xs j k)) => [|j /lineP J]; last first.
  by apply/ffunP => a; rewrite !mixE; case ax: (a \in xs) => //; rewrite J ?ax.
rewrite [RHS](eq_bigl (fun j => (mix xs j h \in line xs h) && (mix xs (mix xs j h) k == j))) => [|j].
  apply: eq_bigr => j /andP[L /eqP M].
  have J : j \in line xs k by apply/lineP => a na; rewrite -M mixE (negbTE na).
  apply: A; first by rewrite (has_line e w F' L).
    by rewrite (has_line e w F' J).
  move=> a ap; rewrite mixE; case: ifP => // nx; rewrite (lineP _ _ _ J) ?nx //.
  by apply: E; rewrite mem_filter nx.
apply/lineP/andP => [J|[_ /eqP M] a na]; last by rewrite -M mixE (negbTE na).
split; first by apply/lineP => a na; rewrite mixE (negbTE na).
by apply/eqP/ffunP => a; rewrite !mixE; case ax: (a \in xs) => //; rewrite J ?ax.
Qed.

(** Reduce-scatter and all-reduce: every device adds up what the devices along the axes hold, of its new tile. *)
Theorem reduce_scatter_sound i xs v v' st x : pwf sz v -> reduce_scatter_rule sz i xs v v' ->
  represents add v st x -> represents add v' (reduced add xs st) x.
Proof.
move=> w [sub R E] [A S]; split=> [h k e hh hk|h e hh].
  by rewrite E; apply: (reduce_alike w sub A); apply: slice_has w R _.
by rewrite E (reduce_parts _ x) // S //; apply: slice_has w R hh.
Qed.

Theorem all_reduce_sound xs v v' st x : pwf sz v -> all_reduce_rule xs v v' ->
  represents add v st x -> represents add v' (reduced add xs st) x.
Proof.
case: v' => [w' p'] w [sub /= -> ->] [A S]; split=> [h k e hh hk|h e hh]; first exact: (reduce_alike w sub A).
by rewrite /= (reduce_parts _ x) // S.
Qed.

(** Summands made of replicas: the devices first along the axes keep their tile. *)
Theorem unreduce_sound xs v v' st x : pwf sz v -> unreduce_rule xs v v' ->
  represents add v st x -> represents add v' (masked zero xs st) x.
Proof.
case: v' => [w' p'] w [[ux /allP fx /allP px] [/= -> ->]] [A S]; split=> [h k e hh hk E|h e hh] /=.
  rewrite /masked (eq_forallb (P2 := fun a => (a \in xs) ==> (k a == 0 :> nat))) => [|a].
    by case: ifP => // _; apply: A => // a ap; apply: E; rewrite mem_cat ap.
  by case: (boolP (a \in xs)) => //= ax; rewrite E // mem_cat ax orbT.
pose h0 : dev := [ffun a => if a \in xs then Ordinal (sz_gt0 a) else h a].
rewrite -big_mkcondr -(S h0); last first.
  rewrite -/(has v h0 e) (has_line e (xs := xs) (h := h)) //; apply/lineP => a na.
  by rewrite ffunE (negbTE na).
apply: eq_bigl => k; apply/andP/lineP => [[/lineP K /forallP Z] a na|K].
  rewrite ffunE; case: ifP => ax; first by apply/val_inj/eqP; have := Z a; rewrite ax.
  by apply: K; rewrite mem_cat negb_or na ax.
split; first apply/lineP => a; rewrite ?mem_cat ?negb_or.
  by case/andP => np nx; rewrite K // ffunE (negbTE nx).
apply/forallP => a; apply/implyP => ax; rewrite K ?px // ffunE ax //.
Qed.

(** Summands made of the parts that a dimension was cut into: every device puts nothing around its part. *)
Theorem unshard_sound i xs v v' st x : pwf sz v -> unshard_rule sz i xs v v' ->
  represents add v st x -> represents add v' (padded zero v st) x.
Proof.
move=> w [R E] [A S]; case/pwfP: (w) => wv _ F; have wv' := gather_wf wv R.
have cuts a : a \in xs -> ~~ free (whole v) a.
  by case: R => ys [Ei _] ax; apply/negP => /freeP/(_ i); rewrite Ei mem_cat ax.
rewrite /represents E; split=> [h k e hh hk H|h e hh].
  have T' := has_same wv' hh hk.
  have Tv : T (whole v) h = T (whole v) k.
    apply/(T_eq _ _ _ wv) => // a fa; have [ax|nx] := boolP (a \in xs); first by apply: H; rewrite mem_cat ax orbT.
    have [ap|np] := boolP (a \in partial v); first by apply: H; rewrite mem_cat ap.
    move/(T_eq _ _ _ wv'): T'; apply => //; case: R => ys [Ei ->]; apply: contraNN fa => /freeP f.
    apply/freeP => j; have := f j; rewrite /= ffunE; case: eqP => [->|//].
    by rewrite Ei mem_cat negb_or nx.
  have hs : has v h e = has v k e by rewrite /Partial.has Tv.
  rewrite /padded hs; case: ifP => // hk'; apply: A; rewrite ?hs //.
  by move=> a ap; apply: H; rewrite mem_cat ap.
have [h1 /lineP L H1] := gather_has wv R hh.
rewrite -(S h1 e H1) /padded -big_mkcondr; apply: eq_bigl => k; apply/andP/lineP => [[/lineP K H2] a na|K].
  have [ax|nx] := boolP (a \in xs).
    by have /(T_eq _ _ _ wv) -> := has_same wv H2 H1; rewrite ?cuts.
  by rewrite K ?L // mem_cat negb_or na.
split; first by apply/lineP => a; rewrite mem_cat negb_or => /andP[np nx]; rewrite K ?L.
by rewrite (has_line e w F (h := h1)) //; apply/lineP.
Qed.

(** A slice keeps summands what they are. *)
Theorem partial_slice_sound i xs v v' st x : pwf sz v -> partial_slice_rule sz i xs v v' ->
  represents add v st x -> represents add v' st x.
Proof.
move=> w [_ R E] [A S]; have H h e := @slice_has v v' i xs h e w R.
by split=> [h k e hh hk|h e hh]; rewrite E; [apply: A; apply: H | apply: S; apply: H].
Qed.
End Values.
End PartialTypes.
